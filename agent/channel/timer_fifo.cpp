#include "agent/channel/timer_fifo.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr const char* path_variable = "TORCHELASTIC_TIMER_FILE";
constexpr const char* enable_variable = "TORCHELASTIC_ENABLE_FILE_TIMER";
constexpr Duration sleep_min = 10ms;

TimerNow timer_now() {
    using namespace std::chrono;
    return {duration<double>(system_clock::now().time_since_epoch()).count(), steady_clock::now()};
}

/// Also by a shell that tells of the signal which ended its program.
bool ended_by(const WorkerEnd& end, std::int32_t signal) {
    constexpr int shell_base = 128;
    if (const auto* signaled = std::get_if<Signaled>(&end)) return signaled->signal == signal;
    const auto* exited = std::get_if<Exited>(&end);
    return exited != nullptr && exited->code == shell_base + signal;
}

Result<FileDescriptor> make_fifo(const std::string& path) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) == 0) {
        if (!S_ISFIFO(facts.st_mode))
            return Error{Errc::already_exists, cat(path_variable, ": ", path, " exists and is not a FIFO")};
        ::unlink(path.c_str());
    }
    if (::mkfifo(path.c_str(), 0600) != 0) return error_from_errno(errno, cat(path_variable, ": make the FIFO ", path));
    // For writing too: else each worker's close would be an end of file.
    FileDescriptor fifo(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!fifo.valid()) return error_from_errno(errno, cat(path_variable, ": open ", path));
    return fifo;
}

}  // namespace

TimerFifo::~TimerFifo() {
    if (!path_.empty()) ::unlink(path_.c_str());
    if (!directory_.empty()) ::rmdir(directory_.c_str());
}

Result<void> TimerFifo::open(std::map<std::string, std::string>& environment, const std::string& temporary) {
    const auto enabled = environment.find(enable_variable);
    if (enabled == environment.end() || enabled->second != "1") return {};
    auto& path = environment[path_variable];
    if (path.empty()) {
        // A directory of our own, 0700: in the temporary one, which is everybody's, others could take or move the name.
        auto made = temporary + "/muster-timers-XXXXXX";
        if (::mkdtemp(made.data()) == nullptr)
            return error_from_errno(errno, cat(path_variable, ": make a directory in ", temporary,
                                               " (it is full or not writable? set TMPDIR to another one)"));
        directory_ = std::move(made);
        path = cat(directory_, "/watchdog_timer_", ::getpid());
    }
    auto fifo = MUSTER_TRY(make_fifo(path));
    path_ = path;
    fifo_.assign(fifo.release());
    wait_for_requests();
    return {};
}

FailureCause TimerFifo::worker_ended(std::int32_t pid, const WorkerEnd& end) {
    leaders_.erase(pid);
    read();  // what it wrote before its end is void, too, and its pid may be another worker's next
    timers_.forget(pid);
    arm();
    const auto sent = sent_.extract(pid);
    if (sent.empty() || !ended_by(end, sent.mapped().signal)) return {};
    return {CauseKind::timer_expired, sent.mapped().why, {}};
}

void TimerFifo::wait_for_requests() {
    call_when_readable(fifo_, life_.guard([this] {
        read();
        arm();
        wait_for_requests();
    }));
}

void TimerFifo::read() {
    char bytes[64 * 1024];  // what a FIFO holds
    const auto size = ::read(fifo_.native_handle(), bytes, sizeof bytes);
    if (size <= 0) return;
    const auto refused = timers_.read({bytes, static_cast<std::size_t>(size)}, timer_now());
    if (refused > 0) log(LogLevel::warning, path_, ": ", refused, " lines are not timer requests; they are ignored");
}

void TimerFifo::arm() {
    const auto next = timers_.next_expiry();
    if (next == no_deadline) return;
    call_after(expiry_, std::max(next - std::chrono::steady_clock::now(), sleep_min), life_.guard([this] {
        end_expired();
        arm();
    }));
}

/// A request may name any process: only ours are signalled, a worker's leader or what is in its process group.
void TimerFifo::end_expired() {
    for (const auto& expired : timers_.take_expired(std::chrono::steady_clock::now())) {
        const auto group = ::getpgid(expired.pid);
        const auto leader = leaders_.find(group > 0 ? group : expired.pid);
        if (leader == leaders_.end()) {
            log(LogLevel::warning, "a timer of process ", expired.pid, ", which is not a worker, has expired: ignored");
            continue;
        }
        if (::kill(expired.pid, expired.signal) != 0) continue;
        if (expired.pid != leader->first) continue;  // its leader may well live on
        sent_[leader->first] = {expired.signal, cat("its timer '", expired.scope, "' has expired (set by process ",
                                                    expired.pid, " with torch.distributed.elastic.timer)")};
    }
}

}  // namespace muster::agent
