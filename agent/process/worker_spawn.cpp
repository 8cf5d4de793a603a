// The child reports a failed start through a pipe that its exec closes. The end of the pipe means success.
#include "agent/process/worker_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "rendezvous/base/kernel/process_limit.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// What goes through the pipe, in one write.
struct Report {
    int error_number;
    char stage[1024];
};
static_assert(sizeof(Report) <= PIPE_BUF);

/// The child's side. It never returns.
class Child {
  public:
    Child(const SpawnRequest& request, int report, pid_t parent, pid_t grandparent)
        : request_(request), report_(report), parent_(parent), grandparent_(grandparent) {}

    [[noreturn]] void run() {
        if (request_.cgroup_procs >= 0) {
            // Best effort: without it the worker is still found by its parents.
            [[maybe_unused]] const auto moved = ::write(request_.cgroup_procs, "0", 1);
        }
        if (::setsid() < 0) fail("setsid");
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) fail("prctl(PR_SET_PDEATHSIG)");
        if (::getppid() != parent_) ::_exit(1);  // it died before the line above could ask for its signal
        // Where Yama lets only ancestors look at a process, the agent's muster-stacks may too; elsewhere this is
        // unknown.
        (void)::prctl(PR_SET_PTRACER, grandparent_, 0, 0, 0);
        if (request_.stdout_fd >= 0 && ::dup2(request_.stdout_fd, 1) < 0) fail("dup2 to stdout");
        if (request_.stderr_fd >= 0 && ::dup2(request_.stderr_fd, 2) < 0) fail("dup2 to stderr");
        if (request_.standby_fd >= 0) keep_standby_fd();
        bind();
        reset_signals();
        exec();
    }

  private:
    /// dup2 of a descriptor to itself would leave it close-on-exec. The pipe of the report may have the number.
    void keep_standby_fd() {
        constexpr int kept = 3;
        if (report_ == kept && (report_ = ::fcntl(report_, F_DUPFD_CLOEXEC, kept + 1)) < 0) ::_exit(1);
        if (request_.standby_fd == kept ? ::fcntl(kept, F_SETFD, 0) < 0 : ::dup2(request_.standby_fd, kept) < 0)
            fail("dup2 to a standby's socket");
    }

    /// Inherited over exec and by every thread and child. Memory is preferred to be near, not confined: a node that is
    /// full would otherwise end the worker while others have room. (That is what hwloc's binding means, too.) Who may
    /// not set a policy, in a container perhaps, has been told by the launcher; the CPUs alone serve by first touch.
    void bind() {
        const auto& cpus = request_.image.cpu_mask;
        if (!cpus.empty() && ::syscall(SYS_sched_setaffinity, 0, cpus.size() * sizeof cpus[0], cpus.data()) < 0)
            fail("sched_setaffinity to the CPUs of --numa-binding");
        const auto& nodes = request_.image.node_mask;
        if (nodes.empty()) return;
        // One more than there are bits: the kernel leaves out the last one. Before Linux 5.15 only the first node can
        // be preferred.
        const auto bits = nodes.size() * sizeof nodes[0] * CHAR_BIT + 1;
        if (::syscall(SYS_set_mempolicy, MPOL_PREFERRED_MANY, nodes.data(), bits) < 0)
            (void)::syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes.data(), bits);
    }

    void reset_signals() {
        for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
        if (request_.image.ignored_signal != 0) ::signal(request_.image.ignored_signal, SIG_IGN);  // exec keeps that
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
    }

    [[noreturn]] void exec() {
        const std::string_view program = request_.image.argv[0];
        if (program.find('/') != std::string_view::npos) {
            try_exec(request_.image.argv[0]);
            fail_exec(request_.image.argv[0], errno);
        }
        std::string_view path = "/bin:/usr/bin";
        for (char* const* variable = request_.image.environment.data(); *variable != nullptr; ++variable) {
            if (std::string_view(*variable).starts_with("PATH=")) path = *variable + 5;
        }
        int error_number = ENOENT;
        for (const auto directory : split(path, ':')) {
            const auto candidate = directory.empty() ? std::string(program) : cat(directory, '/', program);
            try_exec(candidate.c_str());
            if (errno == ENOENT || errno == ENOTDIR) {
                if (::access(candidate.c_str(), F_OK) == 0) fail_exec(candidate.c_str(), ENOENT);
                continue;
            }
            error_number = errno;
            if (errno != EACCES) break;
        }
        fail("execvpe", error_number);
    }

    void try_exec(const char* path) { ::execve(path, request_.image.argv.data(), request_.image.environment.data()); }

    /// "No such file" for a file that is there means the program that would have to read it.
    [[noreturn]] void fail_exec(const char* path, int error_number) {
        if (error_number == ENOENT && ::access(path, F_OK) == 0) {
            fail(cat("interpreter of ", path).c_str(), error_number);
        }
        fail("execve", error_number);
    }

    [[noreturn]] void fail(const char* stage, int error_number = errno) {
        Report report{.error_number = error_number, .stage = {}};
        ::strncpy(report.stage, stage, sizeof report.stage - 1);
        [[maybe_unused]] const auto written = ::write(report_, &report, sizeof report);
        ::_exit(127);
    }

    const SpawnRequest& request_;
    int report_;
    pid_t parent_;       // the guardian
    pid_t grandparent_;  // the agent
};

/// fork(), into the cgroup if it can be had in one step (glibc's fork cannot be asked for that); 0 in the child.
pid_t fork_into(int cgroup_directory, bool& in_cgroup) {
    in_cgroup = cgroup_directory >= 0;
    if (in_cgroup) {
        clone_args arguments{};
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.exit_signal = SIGCHLD;
        arguments.cgroup = static_cast<__u64>(cgroup_directory);
        const auto pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
        if (pid >= 0) return static_cast<pid_t>(pid);
        in_cgroup = false;  // an old kernel, a filter, or a group that does not let us in
    }
    return ::fork();
}

NotStarted refused_process(int error_number) {
    return {error_number, error_number == EAGAIN ? cat("fork beyond ", reached_process_limit()) : std::string("fork")};
}

}  // namespace

SpawnResult spawn_worker(const SpawnRequest& request) {
    SpawnResult result;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
        result.failure = {errno, "pipe"};
        return result;
    }
    result.report = FileDescriptor(ends[0]);
    const FileDescriptor childs_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const auto parent = ::getpid();
    const auto grandparent = ::getppid();
    bool in_cgroup = false;
    const auto pid = fork_into(request.cgroup_directory, in_cgroup);
    if (pid == 0) {
        auto childs = request;
        if (in_cgroup) childs.cgroup_procs = -1;
        Child(childs, childs_end.get(), parent, grandparent).run();
    }
    if (pid < 0)
        result.failure = refused_process(errno);
    else
        result.pid = pid;
    return result;
}

SpawnState read_spawn_report(int report, NotStarted& failure) {
    Report said{};
    const auto size = ::read(report, &said, sizeof said);
    if (size < 0) return SpawnState::starting;
    if (size != sizeof said) return SpawnState::running;
    failure = {said.error_number, said.stage};
    return SpawnState::failed;
}

}  // namespace muster::agent
