#include "agent/process/guardian.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include "agent/process/guardian_loop.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/system/standard_streams.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::size_t thread_count(std::error_code& failure) {
    std::filesystem::directory_iterator threads("/proc/self/task", failure);
    return static_cast<std::size_t>(std::distance(begin(threads), end(threads)));
}

/// Both ends included.
void close_range(int first, int last) {
    if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
    const auto highest = std::min<long>(last, ::sysconf(_SC_OPEN_MAX));  // before Linux 5.9
    for (int fd = first; fd <= highest; ++fd) ::close(fd);
}

/// What the launcher had open is not the guardian's business: a listener kept alive by it would outlive the agent.
void close_all_but(std::vector<int> kept) {
    std::erase_if(kept, [](int fd) { return fd < 3; });
    std::ranges::sort(kept);
    int from = 3;
    for (const int fd : kept) {
        close_range(from, fd - 1);
        from = fd + 1;
    }
    close_range(from, std::numeric_limits<int>::max());
}

}  // namespace

void live_as_guardian(GuardianConfig config, FileDescriptor socket, std::optional<WorkerCgroup> cgroup,
                      GuardianRole role) {
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    close_all_but({socket.get(), cgroup ? cgroup->directory() : -1, cgroup ? cgroup->procs() : -1});
    GuardianLoop(std::move(config), std::move(socket), std::move(cgroup), role).run();
    ::_exit(0);
}

Result<GuardianHandle> fork_guardian(GuardianConfig config) {
    std::error_code failure;
    const auto threads = thread_count(failure);
    if (failure)
        return Error{Errc::unsupported,
                     cat("fork the guardian: /proc/self/task: ", failure.message(),
                         "; this container or chroot has no /proc: mount it (mount -t proc proc /proc)")};
    if (threads != 1)
        return Error{Errc::invalid_argument, "fork the guardian: it must be forked before the first thread starts"};
    if (!open_missing_standard_streams()) return error_from_errno(errno, "fork the guardian: open /dev/null");
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        return error_from_errno(errno, "fork the guardian: socketpair");
    }
    GuardianHandle handle;
    handle.socket = FileDescriptor(ends[0]);
    FileDescriptor guardians_end(ends[1]);
    // Should the guardian be killed, what its workers started becomes ours, so that we can still kill it.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    // An inherited SIG_IGN would throw away how workers end, and our own programs (muster-persist).
    ::signal(SIGCHLD, SIG_DFL);
    // The guardian is born with its signals blocked: one that is sent to the whole group must not run a handler of ours
    // in both. Before it lives nobody removes the control group of a launcher that ends by a signal.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before);
    std::optional<WorkerCgroup> cgroup;
    if (config.cgroup == CgroupUse::when_delegated) cgroup = WorkerCgroup::create(cat("muster-", ::getpid()));
    if (cgroup) handle.cgroup = cgroup->path();
    handle.pid = ::fork();
    const int refused = errno;
    if (handle.pid < 0 && cgroup) remove_cgroup(cgroup->path());
    if (handle.pid != 0) ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (handle.pid < 0) return error_from_shortage(refused, "fork the guardian");
    if (handle.pid == 0) {
        handle.socket.reset();
        live_as_guardian(std::move(config), std::move(guardians_end), std::move(cgroup), GuardianRole::serving);
    }
    handle.pidfd = open_pidfd(handle.pid);
    return handle;
}

}  // namespace muster::agent
