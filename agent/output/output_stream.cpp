#include "agent/output/output_stream.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "rendezvous/base/journal.h"

namespace muster::agent {

namespace {

constexpr Duration partial_after = 200ms;
constexpr Duration journal_patience = 250ms;  ///< The same as ConsoleWriter's.

}  // namespace

void OutputStream::begin() {
    const auto& plan = parts_.plan;
    if (parts_.fold != nullptr) folded_ = parts_.fold->open(plan.fold->rank, plan.fold->among, plan.prefix);
}

OutputStream::Read OutputStream::read(std::string& buffer) {
    const auto size = ::read(source(), buffer.data(), buffer.size());
    if (size > 0) {
        pass({buffer.data(), static_cast<std::size_t>(size)});
        return Read::some;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Read::nothing_now;
    show_partial();  // EOF, or EIO from a pty
    if (folded_) parts_.fold->close(*std::exchange(folded_, std::nullopt), std::chrono::steady_clock::now());
    return Read::ended;
}

bool OutputStream::drain(std::string& buffer) {
    // A pty's last bytes may still be on their way through the kernel: only its end tells that they have come.
    int held = 0;
    if (parts_.terminal || ::ioctl(source(), FIONREAD, &held) != 0) return false;
    while (held > 0) {
        const auto size = ::read(source(), buffer.data(), std::min(buffer.size(), static_cast<std::size_t>(held)));
        if (size <= 0) break;
        held -= static_cast<int>(size);
        pass({buffer.data(), static_cast<std::size_t>(size)});
    }
    return true;
}

void OutputStream::pass(std::string_view bytes) {
    if (parts_.file) parts_.file->append(bytes);
    if (parts_.plan.keep_tail) {
        const std::lock_guard lock(tail_mutex_);
        tail_.add(bytes);
    }
    if (by_line())
        split(bytes);
    else if (parts_.console != nullptr)
        parts_.console->add(bytes);
}

void OutputStream::split(std::string_view bytes) {
    if (folded_ && splitter_.ended_with_return() && bytes.starts_with('\n'))
        parts_.fold->end_bar(*folded_, std::chrono::steady_clock::now());
    splitter_.add(bytes);
    for (std::string_view line; splitter_.next(line);) show(line);
    send_batches();
    partial_deadline_ = splitter_.holds_partial() ? std::chrono::steady_clock::now() + partial_after : no_deadline;
}

void OutputStream::show(std::string_view line) {
    const auto add_to = [&](std::string& batch) {
        batch.append(parts_.plan.prefix);
        batch.append(line);
        batch.push_back('\n');
    };
    if (parts_.console != nullptr && !parts_.plan.journal_fields.empty())
        write_journal(JournalPriority::info, line, parts_.plan.journal_fields, journal_patience);
    else if (folded_)
        fold(line);
    else if (parts_.console != nullptr)
        add_to(console_batch_);
    const auto contained = [&](const std::string& filter) { return line.find(filter) != std::string_view::npos; };
    const auto& filters = parts_.plan.filters;
    if (parts_.filtered_file && std::ranges::any_of(filters, contained)) add_to(filtered_batch_);
}

void OutputStream::fold(std::string_view line) {
    const auto ending = splitter_.ended_with_return() ? LineFold::Ending::carriage_return : LineFold::Ending::newline;
    parts_.fold->add(*folded_, line, ending, std::chrono::steady_clock::now());
}

void OutputStream::send_batches() {
    if (!filtered_batch_.empty()) parts_.filtered_file->append(filtered_batch_);
    if (!console_batch_.empty()) parts_.console->add(console_batch_);
    filtered_batch_.clear();
    console_batch_.clear();
}

void OutputStream::show_partial() {
    partial_deadline_ = no_deadline;
    if (!splitter_.holds_partial()) return;
    show(splitter_.take_partial());
    send_batches();
}

std::string OutputStream::take_tail() {
    const std::lock_guard lock(tail_mutex_);
    return tail_.take();
}

}  // namespace muster::agent
