#include "agent/probes/stacks/traced_thread.h"

#include <errno.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr Duration poll_interval = 1ms;

Error refused(pid_t thread) {
    const int number = errno;
    Error error = error_from_errno(number, cat("look into thread ", thread));
    error.code = Errc::unreachable;
    if (number == EPERM)
        error.context +=
            " (kernel.yama.ptrace_scope, a container without SYS_PTRACE, another user's process, or a debugger)";
    return error;
}

}  // namespace

Result<TracedThread> TracedThread::hold(pid_t thread, Duration limit) {
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return refused(thread);
    if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) return refused(thread);
    const auto until = std::chrono::steady_clock::now() + limit;
    for (;;) {
        int status = 0;
        const auto got = ::waitpid(thread, &status, __WALL | WNOHANG);
        if (got == thread && WIFSTOPPED(status)) {
            const bool for_a_signal = status >> 16 == 0;
            return TracedThread(thread, for_a_signal ? WSTOPSIG(status) : 0);
        }
        if (got == thread || (got < 0 && errno != EINTR))
            return Error{Errc::unreachable, cat("thread ", thread, " has ended meanwhile")};
        if (std::chrono::steady_clock::now() >= until) break;
        std::this_thread::sleep_for(
            poll_interval);  // tidy: allow sleep - ptrace has no event to wait for with a deadline
    }
    return Error{Errc::timed_out, cat("thread ", thread, " is in an uninterruptible system call")};
}

TracedThread::TracedThread(TracedThread&& other) noexcept
    : thread_(std::exchange(other.thread_, 0)), signal_(other.signal_) {}

TracedThread::~TracedThread() {
    if (thread_ != 0) ::ptrace(PTRACE_DETACH, thread_, nullptr, static_cast<long>(signal_));
}

}  // namespace muster::agent
