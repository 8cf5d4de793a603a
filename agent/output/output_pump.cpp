#include "agent/output/output_pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/output/pseudo_terminal.h"
#include "rendezvous/base/kernel/process_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster::agent {

namespace {

constexpr std::size_t read_max_bytes = 256 << 10;
constexpr int pipe_bytes = 256 << 10;  ///< Fewer, larger reads. The user's quota of pipe memory may prevent it.
constexpr Duration settle_max = 100ms;
constexpr Duration stop_max = 5s;  ///< Timeout for a blocked log file.

bool same_stream(int a, int b) {
    struct stat first {
    }, second{};
    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

using StreamPointer = std::shared_ptr<OutputStream>;

}  // namespace

OutputPump::OutputPump(Console console)
    : console_(console), stdout_writer_(console.stdout_fd, "stdout"), stderr_writer_(console.stderr_fd, "stderr") {}

void OutputPump::close() {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    stop_ = true;
    wake();
    const bool stopped = has_stopped_.wait_for(lock, stop_max, [this] { return stopped_; });
    lock.unlock();
    if (stopped) {
        thread_.join();
    } else {
        thread_.detach();  // it owns this pump as well
        log(LogLevel::error, "the log file ", files_.hanging(),
            " has not taken the last of the workers' output within ", describe(stop_max),
            ", so it is missing there; look whether its disk or file server hangs");
    }
    if (!flush_console())
        log(LogLevel::warning,
            "stdout or stderr did not accept all output of the workers before muster exited; the rest is missing there",
            stopped ? " (the files of --tee are complete)" : "");
}

void OutputPump::wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);  // full means awake
}

boost::system::result<FileDescriptor, NotStarted> OutputPump::open_stream(std::uint64_t worker,
                                                                          const WorkerCommand& command,
                                                                          const StreamPlan& plan) {
    const bool is_stdout = &plan == &command.stdout_plan;
    const bool pumped = plan.console || plan.keep_tail || !plan.file.empty() || !plan.filtered_file.empty();
    if (plan.inherit) return FileDescriptor();
    if (!pumped) {
        FileDescriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
        if (!nowhere.valid()) return NotStarted{errno, "open /dev/null"};
        return nowhere;
    }
    OutputStream::Parts parts;
    parts.plan = plan;
    for (const auto& [path, file] : {std::pair{&plan.file, &parts.file}, {&plan.filtered_file, &parts.filtered_file}}) {
        if (path->empty()) continue;
        int error_number = 0;
        // The filtered lines of all workers share a file, which has no owner.
        const auto owner = path == &plan.file ? command.owner : std::nullopt;
        *file = files_.open(*path, command.heading, owner, error_number);
        if (!*file) {
            const auto* const why =
                error_number == ELOOP ? " (a link, and a log is written through none: remove it)" : "";
            return NotStarted{error_number, cat("open ", *path, why)};
        }
    }
    // Two threads on one stream (2>&1) would cut each other's lines in two.
    const bool one_console = same_stream(console_.stdout_fd, console_.stderr_fd);
    if (plan.console) parts.console = is_stdout || one_console ? &stdout_writer_ : &stderr_writer_;
    if (plan.console && plan.fold) parts.fold = is_stdout || one_console ? &stdout_fold_ : &stderr_fold_;
    FileDescriptor workers_end;
    if (plan.terminal) {
        if (auto terminal = open_pseudo_terminal(
                is_stdout ? console_.stdout_fd : console_.stderr_fd)) {  // else: no /dev/pts here, and a pipe must do
            parts.source = std::move(terminal->ours);
            parts.terminal = true;
            workers_end = std::move(terminal->workers);
        }
    }
    if (!parts.source.valid()) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) return NotStarted{errno, "pipe"};
        parts.source = FileDescriptor(ends[0]);
        workers_end = FileDescriptor(ends[1]);
        ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
        ::fcntl(ends[0], F_SETPIPE_SZ, pipe_bytes);
    }
    if (auto failure = begin()) return *std::move(failure);
    if (auto failure = adopt(worker, is_stdout, std::move(parts))) return *std::move(failure);
    return workers_end;
}

/// What the first stream needs and all others share. It may have failed before, and be had now.
std::optional<NotStarted> OutputPump::begin() {
    if (thread_.joinable()) return std::nullopt;
    epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.valid()) return NotStarted{errno, "epoll_create1"};
    wake_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_.valid()) return NotStarted{errno, "eventfd"};
    epoll_event wake_event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &wake_event) != 0) return NotStarted{errno, "epoll_ctl"};
    auto started = start_thread("muster-output", [self = shared_from_this()] { self->run(); });
    if (!started) return NotStarted{EAGAIN, cat("start a thread beyond ", reached_process_limit())};
    thread_ = std::move(*started);
    return std::nullopt;
}

std::optional<NotStarted> OutputPump::adopt(std::uint64_t worker, bool is_stdout, OutputStream::Parts parts) {
    const auto stream = std::make_shared<OutputStream>(std::move(parts));
    {
        // Under the lock, so that the pump finds a stream among the arrived ones before it sees an event of it.
        const std::lock_guard lock(mutex_);
        epoll_event event{.events = EPOLLIN, .data = {.ptr = stream.get()}};
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream->source(), &event) != 0)
            return NotStarted{errno, "epoll_ctl"};
        arrived_.push_back(stream);
    }
    auto& known = by_worker_[worker];
    (is_stdout ? known.out : known.err) = stream;
    wake();
    return std::nullopt;
}

void OutputPump::change_owner(std::uint64_t worker, const LogOwner& owner) {
    const auto known = by_worker_.find(worker);
    if (known == by_worker_.end()) return;
    for (const auto& stream : {known->second.out, known->second.err})
        if (stream) stream->change_owner(owner);
}

void OutputPump::settle(std::uint64_t worker, std::function<void()> settled) {
    Settling asked{.settled = std::move(settled), .deadline = std::chrono::steady_clock::now() + settle_max};
    const auto known = by_worker_.find(worker);
    if (known != by_worker_.end())
        for (const auto& stream : {known->second.out, known->second.err})
            if (stream) asked.streams.push_back(stream);
    if (asked.streams.empty()) return asked.settled();
    {
        const std::lock_guard lock(mutex_);
        asked_.push_back(std::move(asked));
    }
    wake();
}

std::string OutputPump::take_tail(std::uint64_t worker) {
    const auto known = by_worker_.extract(worker);
    return known.empty() || !known.mapped().err ? std::string() : known.mapped().err->take_tail();
}

bool OutputPump::flush_console() {
    const auto deadline = std::chrono::steady_clock::now() + last_flush_max;
    const bool first = stdout_writer_.flush(last_flush_max);
    return stderr_writer_.flush(std::max(Duration(0), Duration(deadline - std::chrono::steady_clock::now()))) && first;
}

void OutputPump::run() {
    buffer_.resize(read_max_bytes);
    for (;;) {
        const bool stops = stop_;
        epoll_event ready[32];
        const auto timeout = stops ? 0 : timeout_ms(std::chrono::steady_clock::now());
        const auto count = ::epoll_wait(epoll_.get(), ready, 32, timeout);
        take_arrivals();
        for (int i = 0; i < count; ++i) {
            if (auto* stream = static_cast<OutputStream*>(ready[i].data.ptr)) read_ready(stream);
        }
        // After the reads: a question may close a stream that an event of this turn still points to.
        take_questions();
        if (stops) read_last();
        const auto now = std::chrono::steady_clock::now();
        show_partials(now);
        show_folded(now, stops);
        const std::lock_guard lock(mutex_);
        if (stops) {
            stopped_ = true;
            return has_stopped_.notify_all();
        }
        if (!stop_) finish_settled(now);  // whom it calls is there until close() returns
    }
}

void OutputPump::take_arrivals() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto size = ::read(wake_.get(), &count, sizeof count);
    const std::lock_guard lock(mutex_);
    move_arrived();
}

void OutputPump::take_questions() {
    std::vector<Settling> asked;
    {
        const std::lock_guard lock(mutex_);
        move_arrived();  // what is asked about is known
        asked.swap(asked_);
    }
    for (auto& settling : asked) {
        drain(settling);
        settling_.push_back(std::move(settling));
    }
}

void OutputPump::move_arrived() {
    for (auto& stream : arrived_) {
        stream->begin();
        streams_.push_back(std::move(stream));
    }
    arrived_.clear();
}

void OutputPump::drain(Settling& settling) {
    std::erase_if(settling.streams, [&](const StreamPointer& stream) { return stream->drain(buffer_); });
}

void OutputPump::read_ready(OutputStream* stream) {
    if (stream->read(buffer_) == OutputStream::Read::ended) drop(stream);
}

/// Once more what is there, of every stream: the turn's events may name some of them only.
void OutputPump::read_last() {
    for (const auto& stream : std::vector(streams_)) {
        read_ready(stream.get());
        stream->show_partial();
    }
}

void OutputPump::drop(OutputStream* stream) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stream->source(), nullptr);
    const auto is_it = [&](const StreamPointer& other) { return other.get() == stream; };
    for (auto& settling : settling_) std::erase_if(settling.streams, is_it);
    std::erase_if(streams_, is_it);
}

void OutputPump::finish_settled(Instant now) {
    std::erase_if(settling_, [&](Settling& settling) {
        // A stream may have ended before it was asked about.
        std::erase_if(settling.streams, [&](const StreamPointer& stream) {
            return std::ranges::find(streams_, stream) == streams_.end();
        });
        const bool over = settling.streams.empty() || now >= settling.deadline;
        if (over) settling.settled();
        return over;
    });
}

void OutputPump::show_partials(Instant now) {
    for (const auto& stream : streams_) {
        if (stream->partial_deadline() <= now) stream->show_partial();
    }
}

void OutputPump::show_folded(Instant now, bool all) {
    for (const auto& [fold, writer] : {std::pair{&stdout_fold_, &stdout_writer_}, {&stderr_fold_, &stderr_writer_}}) {
        if (all)
            fold->show_all(now);
        else
            fold->show_due(now);
        if (const auto text = fold->take(); !text.empty()) writer->add(text);
    }
}

int OutputPump::timeout_ms(Instant now) const {
    auto deadline = std::min(stdout_fold_.due(), stderr_fold_.due());
    for (const auto& stream : streams_) deadline = std::min(deadline, stream->partial_deadline());
    for (const auto& settling : settling_) deadline = std::min(deadline, settling.deadline);
    if (deadline == no_deadline) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

boost::system::result<WorkerStreams, NotStarted> OutputPump::open(std::uint64_t worker, const WorkerCommand& command) {
    WorkerStreams streams;
    for (const auto& [plan, descriptor] :
         {std::pair(&command.stdout_plan, &streams.stdout_fd), std::pair(&command.stderr_plan, &streams.stderr_fd)}) {
        auto opened = open_stream(worker, command, *plan);
        if (opened.has_error()) {
            forget(worker);
            return opened.error();
        }
        *descriptor = *std::move(opened);
    }
    return streams;
}

}  // namespace muster::agent
