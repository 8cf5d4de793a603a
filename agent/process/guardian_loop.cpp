#include "agent/process/guardian_loop.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "agent/output/log_directory.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/sockets/datagram.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace wire = guardian_wire;

namespace {

/// Between two looks at a signalled group, for the rare case that the death of its last process does not wake us.
constexpr Duration group_pause = 200ms;
/// Answers that a stopped agent has not read: each worker gives two.
constexpr std::size_t outbox_max_count = 100'000;

FileDescriptor open_child_signals() {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    return FileDescriptor(::signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC));
}

/// The whole memfd, or empty text.
std::string read_image(int fd) {
    struct stat facts {};
    if (::fstat(fd, &facts) != 0 || facts.st_size <= 0) return {};
    const auto size = static_cast<std::size_t>(facts.st_size);
    return size <= wire::image_max_bytes ? read_front(fd, size).value_or(std::string()) : std::string();
}

WorkerEnd end_of(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) return Exited{info.si_status};
    return Signaled{.signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

void name_process(GuardianRole role) {
    ::prctl(PR_SET_NAME, role == GuardianRole::serving ? "muster-guardian" : "muster-reserve");
}

}  // namespace

GuardianLoop::GuardianLoop(GuardianConfig config, FileDescriptor socket, std::optional<WorkerCgroup> cgroup,
                           GuardianRole role)
    : config_(std::move(config)),
      socket_(std::move(socket)),
      child_signals_(open_child_signals()),
      cgroup_path_(cgroup ? cgroup->path() : std::string()),
      cgroup_(std::move(cgroup)),
      role_(role) {
    name_process(role_);
}

void GuardianLoop::run() {
    for (;;) {
        auto now = std::chrono::steady_clock::now();
        wait(now);
        // The time before reading: what waits in the socket was sent before it and must count as food.
        now = std::chrono::steady_clock::now();
        read_messages(now);
        check_starts();
        check_standbys();
        reap(now);
        check_groups();
        follow_up(now);
        if (agent_gone_)
            begin_kill(Cause::agent_gone, now);
        else if (unfed(now))
            begin_kill(Cause::unfed, now);
        continue_kill(now);
        flush();
        if (agent_gone_ && (!killing_ || killing_->stuck)) break;
    }
    // Beside a stuck process: what that killing has left alone until now, with all that it has started.
    if (killing_) kill_pass();
    remove_cgroups(cgroup_path_);
    if (quitting_ || role_ != GuardianRole::serving) return;
    report_agent_death();
    if (!folder_.empty()) remove_empty_folders(folder_);
}

void GuardianLoop::wait(Instant now) {
    std::vector<pollfd> fds = {{child_signals_.get(), POLLIN, 0}, {agent_gone_ ? -1 : socket_.get(), POLLIN, 0}};
    if (!outbox_.empty()) fds[1].events |= POLLOUT;
    for (const auto& worker : workers_) {
        if (worker.report.valid()) fds.push_back({worker.report.get(), POLLIN, 0});
    }
    for (const auto& standby : standbys_) {
        if (standby.report.valid()) fds.push_back({standby.report.get(), POLLIN, 0});
        // Its end is not awaited here: a dead one would keep the loop awake until it is reaped.
        if (!standby.ready && !standby.report.valid()) fds.push_back({standby.socket.get(), POLLIN, 0});
    }
    const auto deadline = next_deadline(now);
    timespec left{};
    if (deadline != no_deadline && deadline > now) {
        const auto rest = (deadline - now).count();
        left = {.tv_sec = rest / 1'000'000'000, .tv_nsec = rest % 1'000'000'000};
    }
    ::ppoll(fds.data(), fds.size(), deadline == no_deadline ? nullptr : &left, nullptr);
    signalfd_siginfo ignored[16];  // reap() asks the kernel who it was: signals of one number merge
    while (::read(child_signals_.get(), ignored, sizeof ignored) > 0) {
    }
}

Instant GuardianLoop::next_deadline(Instant now) const {
    auto deadline = no_deadline;
    // The last of a group is our child, as a rule; unless its parent has left the group.
    if (std::ranges::any_of(groups_, &Group::signalled)) deadline = now + group_pause;
    if (follow_up_) deadline = std::min(deadline, follow_up_->next_look);
    if (killing_) deadline = killing_->next_pass;
    for (const auto& worker : workers_)
        if (worker.takeover) deadline = std::min(deadline, worker.takeover->until);
    const bool watchdog_runs = last_fed_ && config_.unfed_max > 0ns && children_left_;
    if (watchdog_runs && !killing_) deadline = std::min(deadline, *last_fed_ + config_.unfed_max);
    return deadline;
}

void GuardianLoop::read_messages(Instant now) {
    while (!agent_gone_) {
        auto datagram = receive_datagram(socket_.get(), wire::datagram_max_bytes, wire::fds_max);
        if (!datagram && errno == EAGAIN) return;
        if (!datagram || datagram->bytes.empty()) {
            agent_gone_ = true;
            return;
        }
        const auto message = wire::decode(datagram->bytes);
        if (message) handle(*message, datagram->descriptors, now);
    }
}

void GuardianLoop::handle(const wire::Message& message, std::vector<FileDescriptor>& fds, Instant now) {
    std::visit(Overloaded{
                   [&](const wire::Spawn& asked) { spawn(asked, fds); },
                   [&](const wire::Signal& signal) { signal_leaders(signal.signal); },
                   [&](const wire::Keep& keep) { kept_ = keep.ids; },
                   [&](const wire::SignalGroup& signal) { signal_group(signal); },
                   [&](const wire::ForkReserve&) { fork_reserve(fds); },
                   [&](const wire::Serve& order) { serve(order); },
                   [&](const wire::DeathNotice& notice) { death_notice_ = notice.bytes; },
                   [&](const wire::Folder& folder) { folder_ = folder.path; },
                   [&](const wire::FollowUp& wanted) { begin_follow_up(wanted); },
                   [&](const wire::Feed&) { last_fed_ = now; },
                   [&](const wire::Quit&) { quitting_ = true; },
                   [&](const wire::Kill& kill) {
                       empty_asked_ = kill.number;
                       begin_kill(Cause::asked, now);
                   },
                   [&](const wire::EndStandby& standby) { end_standby(standby.id); },
                   [](const auto& /*of a guardian*/) {},
               },
               message);
}

void GuardianLoop::spawn(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds) {
    if (spawn.stands_by) return start_standby(spawn, fds);
    if (spawn.standby != 0 && take_over(spawn, fds)) return;
    start_worker(spawn, fds);
}

void GuardianLoop::start_worker(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds) {
    auto result = try_spawn(spawn, fds);
    const auto now = std::chrono::steady_clock::now();
    if (result.pid == 0) {
        send(wire::Ended{.id = spawn.id, .end = std::move(result.failure), .at_ns = now.time_since_epoch().count()});
        return;
    }
    workers_.push_back({spawn.id, result.pid, std::move(result.report), {}, {}});
    children_left_ = true;
}

void GuardianLoop::check_starts() {
    for (auto& worker : workers_) check_start(worker);
    std::erase_if(workers_, [](const Worker& worker) { return worker.pid == 0; });  // it could not be started
}

void GuardianLoop::check_start(Worker& worker) {
    if (worker.takeover) return check_takeover(worker, std::chrono::steady_clock::now());
    if (read_start(worker)) send(wire::Spawned{worker.id, worker.pid});
}

SpawnResult GuardianLoop::try_spawn(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds, int standby_fd) {
    const auto refuse = [](int error_number, const char* stage) {
        return SpawnResult{.pid = 0, .report = {}, .failure = {.error_number = error_number, .stage = stage}};
    };
    if (killing_) return refuse(ECANCELED, "the workers are being killed");
    if (fds.size() != spawn_descriptors(spawn)) return refuse(EMFILE, "receive descriptors");
    auto bytes = read_image(fds[0].get());
    const auto image = wire::parse_image(bytes);
    if (!image) return refuse(EINVAL, "read the command");
    // A group of its own, by which it can be found, weighed and limited; where there is none to be had, the common one.
    // A standby process has one beside that of the workers, which is killed with a round. One that was to become this
    // worker may still be dying in worker-N.
    std::optional<WorkerCgroup> own;
    if (cgroup_ && !spawn.stands_by)
        own = cgroup_->child(cat("worker-", spawn.id, spawn.standby != 0 ? "-normal" : ""));
    if (cgroup_ && spawn.stands_by) own = WorkerCgroup::create_at(cat(standby_cgroup(cgroup_path_), '/', spawn.id));
    if (cgroup_ && spawn.stands_by && !own) return refuse(EACCES, "make a control group for a standby process");
    const auto& group = own ? own : cgroup_;
    return spawn_worker({
        .image = *image,
        .stdout_fd = spawn.has_stdout ? fds[1].get() : -1,
        .stderr_fd = spawn.has_stderr ? fds.back().get() : -1,
        .cgroup_directory = group ? group->directory() : -1,
        .standby_fd = standby_fd,
        .cgroup_procs = group ? group->procs() : -1,
    });
}

void GuardianLoop::fork_reserve(std::vector<FileDescriptor>& fds) {
    if (fds.size() != 1) return;
    // CLONE_PARENT makes it a child of the agent: it must outlive us, and must not be taken for a worker's remains.
    // As long as this process has one thread its copy is whole, whatever the agent's threads were doing at our fork.
    const auto pid = ::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (pid == 0) live_as_guardian(config_, std::move(fds[0]), std::nullopt, GuardianRole::standing_by);
    send(wire::ReserveForked{.pid = pid > 0 ? static_cast<std::int32_t>(pid) : 0, .error_number = pid < 0 ? errno : 0});
}

void GuardianLoop::serve(const wire::Serve& serve) {
    role_ = GuardianRole::serving;
    name_process(role_);
    cgroup_path_ = serve.cgroup;
    if (!serve.cgroup.empty()) cgroup_ = WorkerCgroup::create_at(serve.cgroup);
}

void GuardianLoop::reap(Instant now) {
    for (;;) {
        siginfo_t info{};
        // __WALL: also what was made by clone() with another exit signal.
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WALL) != 0) {
            if (errno == EINTR) continue;
            children_left_ = false;  // ECHILD
            return;
        }
        children_left_ = true;
        if (info.si_pid == 0) {
            children_left_ = standbys_.empty() || !workers_.empty() || has_other_children();
            return;
        }
        report_end(info.si_pid, end_of(info), now);
    }
}

void GuardianLoop::report_end(pid_t pid, const WorkerEnd& end, Instant now) {
    const auto worker = std::ranges::find(workers_, pid, &Worker::pid);
    if (worker == workers_.end()) {
        report_standby_end(pid, end, now);  // else adopted
        return;
    }
    if (worker->takeover) worker->takeover->reaped = true;
    check_start(*worker);
    if (worker->takeover && !killing_) start_normally(*worker);
    if (worker->pid != pid) {  // a standby process that a normal start has replaced, or was to replace
        if (worker->pid == 0) workers_.erase(worker);
        return;
    }
    const auto at_ns = now.time_since_epoch().count();
    const auto* signaled = std::get_if<Signaled>(&end);
    const bool unfed = killing_ && killing_->cause == Cause::unfed && signaled && signaled->signal == SIGKILL;
    const bool group_left = !worker->failure && note_group(worker->id, pid);
    if (worker->failure)
        send(wire::Ended{.id = worker->id, .end = *worker->failure, .at_ns = at_ns});
    else
        send(wire::Ended{
            .id = worker->id, .pid = pid, .end = end, .at_ns = at_ns, .unfed = unfed, .group_left = group_left});
    // What it has left there keeps the group until it ends, or is killed with all the others.
    for (const auto* start : {"", "-normal"})
        if (cgroup_) remove_cgroup(cat(cgroup_->path(), "/worker-", worker->id, start));
    workers_.erase(worker);
}

void GuardianLoop::send(const wire::Message& message) {
    if (outbox_.size() < outbox_max_count) outbox_.push_back(wire::encode(message));
}

void GuardianLoop::flush() {
    while (!agent_gone_ && !outbox_.empty()) {
        const auto& datagram = outbox_.front();
        const auto sent = ::send(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return;  // full: the agent is stopped; gone: the next read says so
        outbox_.pop_front();
    }
}

void GuardianLoop::report_agent_death() {
    if (!config_.on_agent_death) return;
    // The cut-off: SIGALRM ends this process, which has nothing else to do any more.
    ::signal(SIGALRM, SIG_DFL);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    ::sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
    const auto limit = std::chrono::duration_cast<std::chrono::microseconds>(config_.on_agent_death_max).count();
    const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = limit / 1'000'000, .tv_usec = limit % 1'000'000}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
    config_.on_agent_death(death_notice_);
}

}  // namespace muster::agent
