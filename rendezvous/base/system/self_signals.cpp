#include "rendezvous/base/system/self_signals.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <limits>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/system/detached_child.h"

namespace muster {

namespace {

int in_milliseconds(Duration length) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(length).count();
    return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

bool send(int process, int signal) {
    return ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0) == 0;
}

void carry_out(const SelfSignals& plan, int process) {
    if (!wait_beside(process, in_milliseconds(plan.after))) return;
    for (std::uint32_t i = 0; i < plan.times; ++i) {
        if (!send(process, plan.signal) || plan.stopped == Duration::zero()) return;
        if (!wait_beside(process, in_milliseconds(plan.stopped)) || !send(process, SIGCONT)) return;
        if (!wait_beside(process, in_milliseconds(plan.running))) return;
    }
}

}  // namespace

Result<void> signal_self(const SelfSignals& plan) {
    const FileDescriptor self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (!self.valid()) return error_from_errno(errno, "open a descriptor of this process");
    return run_detached(self.get(), [&plan, process = self.get()] { carry_out(plan, process); });
}

}  // namespace muster
