#include "rendezvous/base/console_writer.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/thread_start.h"

namespace muster {

namespace {

/// What an idle console may keep of its memory.
constexpr std::size_t idle_max_bytes = 128 << 10;
constexpr Duration stop_max = 50ms;
/// A line waits so long for a stream that is not ready. A ready one takes it at once.
constexpr Duration no_thread_max = 1ms;

}  // namespace

struct ConsoleWriter::Shared {
    int fd;
    std::string name;
    Limits limits;
    Target target;  ///< Replaces `fd` if it is set.

    std::mutex mutex;
    std::condition_variable filled;   ///< The thread waits for bytes.
    std::condition_variable drained;  ///< add() and flush() wait for space.
    std::string buffer;
    bool writing = false;  ///< True while the thread holds bytes that it took from the buffer.
    bool stopped = false;
    bool closed = false;              ///< True after EPIPE: every later write would fail.
    bool failing = false;             ///< An error was logged and no write has succeeded since.
    bool finished = false;            ///< The thread is about to return.
    std::uint64_t skipped_count = 0;  ///< Lines dropped since the last accepted one. Not 0: dropping.
    bool at_line_start = true;        ///< True if the buffer ends with a complete line.

    void run();
    void write_all(std::string_view bytes);
    bool write_before(Instant deadline);
    void broken(int error_number);
    void accept(std::string_view text);
};

void ConsoleWriter::Shared::run() {
    std::unique_lock lock(mutex);
    std::string taken;
    for (;;) {
        filled.wait(lock, [this] { return stopped || !buffer.empty(); });
        if (stopped) {
            finished = true;
            drained.notify_all();
            return;
        }
        taken.clear();
        std::swap(taken, buffer);
        writing = true;
        drained.notify_all();
        lock.unlock();
        if (target.write)
            target.write(taken);
        else
            write_all(taken);
        lock.lock();
        writing = false;
        // What was dropped is told when there is room again, also if nothing more is ever printed.
        if (buffer.empty() && taken.capacity() > idle_max_bytes) buffer = taken = std::string{};
        if (skipped_count > 0 && buffer.size() <= limits.buffer_max_bytes / 2) accept({});
        drained.notify_all();
    }
}

void ConsoleWriter::Shared::write_all(std::string_view bytes) {
    while (!bytes.empty() && !closed) {
        const auto written = ::write(fd, bytes.data(), bytes.size());
        if (written >= 0) {
            failing = false;
            bytes.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno == EAGAIN) {  // somebody made the stream non-blocking, for all who share it
            pollfd ready{fd, POLLOUT, 0};
            ::poll(&ready, 1, 1000);
        } else if (errno != EINTR) {
            broken(errno);
            return;
        }
    }
}

/// By the caller, where there is no thread: only what the stream takes without waiting longer than that.
bool ConsoleWriter::Shared::write_before(Instant deadline) {
    if (target.write) return buffer.empty();
    while (!buffer.empty() && !closed) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd ready{fd, POLLOUT, 0};
        if (::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0) return false;
        const auto written = ::write(fd, buffer.data(), std::min<std::size_t>(buffer.size(), PIPE_BUF));
        if (written < 0 && errno != EAGAIN && errno != EINTR) {
            closed = errno == EPIPE || errno == EBADF;
            buffer.clear();
        }
        if (written <= 0) return false;
        buffer.erase(0, static_cast<std::size_t>(written));
    }
    return true;
}

void ConsoleWriter::Shared::broken(int error_number) {
    closed = error_number == EPIPE || error_number == EBADF;
    if (std::exchange(failing, true) || closed) return;  // a closed pipe is the wish of `muster ... | head`
    log(LogLevel::warning, "cannot write to ", name, ": ", errno_text(error_number), "; the job goes on without it");
}

void ConsoleWriter::Shared::accept(std::string_view text) {
    if (skipped_count > 0) {
        if (!at_line_start) buffer.push_back('\n');
        buffer.append(target.skipped ? target.skipped(skipped_count)
                                     : cat(line_time(fd), "... ", skipped_count,
                                           skipped_count == 1 ? " line" : " lines", " skipped\n"));
        at_line_start = true;
        skipped_count = 0;
    }
    buffer.append(text);
    if (!text.empty()) at_line_start = text.back() == '\n';
    filled.notify_one();
}

ConsoleWriter::ConsoleWriter(int fd, std::string name, Limits limits) : shared_(std::make_shared<Shared>()) {
    shared_->fd = fd;
    shared_->name = std::move(name);
    shared_->limits = limits;
}

ConsoleWriter::ConsoleWriter(Target target, Limits limits) : ConsoleWriter(-1, {}, limits) {
    shared_->target = std::move(target);
}

ConsoleWriter::~ConsoleWriter() {
    if (!thread_.joinable()) return;
    std::unique_lock lock(shared_->mutex);
    shared_->stopped = true;
    shared_->filled.notify_all();
    const bool finished = shared_->drained.wait_for(lock, stop_max, [this] { return shared_->finished; });
    lock.unlock();
    if (finished)
        thread_.join();
    else
        thread_.detach();
}

void ConsoleWriter::add(std::string_view text) {
    if (text.empty()) return;
    auto& self = *shared_;
    std::unique_lock lock(self.mutex);
    begin();
    const auto limit = self.limits.buffer_max_bytes;
    const auto has_room = [&] { return self.buffer.empty() || self.buffer.size() + text.size() <= limit; };
    bool dropping = self.skipped_count > 0 && self.buffer.size() > limit / 2;
    if (!dropping && !has_room())
        dropping = !thread_.joinable() || !self.drained.wait_for(lock, self.limits.patience, has_room);
    if (!dropping)
        self.accept(text);
    else
        self.skipped_count +=
            std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')));
    if (!thread_.joinable()) self.write_before(std::chrono::steady_clock::now() + no_thread_max);
}

void ConsoleWriter::begin() {
    if (thread_.joinable()) return;
    auto started = start_thread("muster-console", [shared = shared_] { shared->run(); });
    if (started) thread_ = std::move(*started);
}

bool ConsoleWriter::flush(Duration limit) {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->buffer.empty()) begin();
    if (!thread_.joinable()) return shared_->write_before(std::chrono::steady_clock::now() + limit);
    return shared_->drained.wait_for(lock, limit, [this] { return shared_->buffer.empty() && !shared_->writing; });
}

}  // namespace muster
