#include "agent/process/guardian_loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "agent/process/process_tree.h"

namespace muster::agent {

namespace wire = guardian_wire;

namespace {

/// Between two looks at /proc while something is still dying. Deaths themselves wake the loop.
constexpr Duration pause_max = 200ms;
constexpr Duration first_pause = 1ms;
/// Answers that a stopped agent has not read: each worker gives two.
constexpr std::size_t outbox_max_count = 100'000;

FileDescriptor open_child_signals() {
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    return FileDescriptor(::signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC));
}

/// One datagram and the descriptors beside it. `size` is that of recvmsg: 0 at the end, -1 with errno.
struct Datagram {
    ssize_t size = -1;
    std::string bytes;
    std::vector<FileDescriptor> fds;
};

Datagram receive(int socket) {
    Datagram datagram;
    datagram.bytes.resize(wire::datagram_max_bytes);
    iovec part{datagram.bytes.data(), datagram.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::spawn_max_fds)];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    datagram.size = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (datagram.size < 0) return datagram;
    datagram.bytes.resize(static_cast<std::size_t>(datagram.size));
    for (auto* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        const auto count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(item));
        for (std::size_t i = 0; i < count; ++i) datagram.fds.emplace_back(fds[i]);
    }
    return datagram;
}

/// The whole memfd, or empty text.
std::string read_image(int fd) {
    struct stat facts {};
    if (::fstat(fd, &facts) != 0 || facts.st_size <= 0) return {};
    if (static_cast<std::size_t>(facts.st_size) > wire::image_max_bytes) return {};
    std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
    const auto size = ::pread(fd, bytes.data(), bytes.size(), 0);
    return size == facts.st_size ? bytes : std::string{};
}

WorkerEnd end_of(const siginfo_t& info) {
    if (info.si_code == CLD_EXITED) return Exited{info.si_status};
    return Signaled{.signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

}  // namespace

GuardianLoop::GuardianLoop(GuardianConfig config, FileDescriptor socket, std::optional<WorkerCgroup> cgroup)
    : config_(std::move(config)),
      socket_(std::move(socket)),
      child_signals_(open_child_signals()),
      cgroup_(std::move(cgroup)) {}

void GuardianLoop::run() {
    for (;;) {
        auto now = std::chrono::steady_clock::now();
        wait(now);
        // The time before reading: what waits in the socket was sent before it and must count as food.
        now = std::chrono::steady_clock::now();
        read_messages(now);
        look_at_starts();
        reap(now);
        if (agent_gone_)
            begin_kill(Cause::agent_gone, now);
        else if (unfed(now))
            begin_kill(Cause::unfed, now);
        continue_kill(now);
        flush();
        if (agent_gone_ && (!killing_ || killing_->stuck)) break;
    }
    if (cgroup_) remove_cgroup(cgroup_->path());
    if (!farewell_) say_agent_died();
}

void GuardianLoop::wait(Instant now) {
    std::vector<pollfd> fds = {{child_signals_.get(), POLLIN, 0}, {agent_gone_ ? -1 : socket_.get(), POLLIN, 0}};
    if (!outbox_.empty()) fds[1].events |= POLLOUT;
    for (const auto& worker : workers_) {
        if (worker.report.valid()) fds.push_back({worker.report.get(), POLLIN, 0});
    }
    const auto deadline = next_deadline();
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

Instant GuardianLoop::next_deadline() const {
    auto deadline = no_deadline;
    if (killing_) deadline = killing_->next_pass;
    const bool hungry = last_fed_ && config_.unfed_max > 0ns && children_left_;
    if (hungry && !killing_) deadline = std::min(deadline, *last_fed_ + config_.unfed_max);
    return deadline;
}

bool GuardianLoop::unfed(Instant now) const {
    return last_fed_ && config_.unfed_max > 0ns && children_left_ && now - *last_fed_ >= config_.unfed_max;
}

void GuardianLoop::read_messages(Instant now) {
    while (!agent_gone_) {
        auto datagram = receive(socket_.get());
        if (datagram.size < 0 && errno == EINTR) continue;
        if (datagram.size < 0 && errno == EAGAIN) return;
        if (datagram.size <= 0) {
            agent_gone_ = true;
            return;
        }
        if (last_fed_) last_fed_ = now;
        const auto message = wire::decode(datagram.bytes);
        if (message) handle(*message, datagram.fds, now);
    }
}

void GuardianLoop::handle(const wire::Message& message, std::vector<FileDescriptor>& fds, Instant now) {
    if (const auto* asked = std::get_if<wire::Spawn>(&message))
        spawn(*asked, fds);
    else if (const auto* signal = std::get_if<wire::Signal>(&message))
        signal_workers(*signal);
    else if (const auto* testament = std::get_if<wire::Testament>(&message))
        testament_ = testament->bytes;
    else if (std::holds_alternative<wire::Feed>(message))
        last_fed_ = now;
    else if (std::holds_alternative<wire::Farewell>(message))
        farewell_ = true;
    else if (std::holds_alternative<wire::Kill>(message)) {
        empty_asked_ = true;
        begin_kill(Cause::asked, now);
    }
}

void GuardianLoop::spawn(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds) {
    auto result = try_spawn(spawn, fds);
    const auto now = std::chrono::steady_clock::now();
    if (result.pid == 0) {
        send(wire::Ended{.id = spawn.id, .end = std::move(result.failure), .at_ns = now.time_since_epoch().count()});
        return;
    }
    workers_.push_back({spawn.id, result.pid, std::move(result.report), {}});
    children_left_ = true;
}

void GuardianLoop::look_at_starts() {
    for (auto& worker : workers_) look_at_start(worker);
}

void GuardianLoop::look_at_start(Worker& worker) {
    if (!worker.report.valid()) return;
    NotStarted failure;
    const auto state = read_spawn_report(worker.report.get(), failure);
    if (state == SpawnState::starting) return;
    worker.report.reset();
    if (state == SpawnState::running)
        send(wire::Spawned{worker.id, worker.pid});
    else
        worker.failure = std::move(failure);
}

SpawnResult GuardianLoop::try_spawn(const wire::Spawn& spawn, std::vector<FileDescriptor>& fds) {
    const auto refuse = [](int error_number, const char* stage) {
        return SpawnResult{.pid = 0, .report = {}, .failure = {.error_number = error_number, .stage = stage}};
    };
    if (killing_) return refuse(ECANCELED, "the workers are being killed");
    const std::size_t expected = 1 + (spawn.has_stdout ? 1 : 0) + (spawn.has_stderr ? 1 : 0);
    if (fds.size() != expected) return refuse(EMFILE, "receive descriptors");
    auto bytes = read_image(fds[0].get());
    const auto image = wire::parse_image(bytes);
    if (!image) return refuse(EINVAL, "read the command");
    return spawn_worker({
        .image = *image,
        .stdout_fd = spawn.has_stdout ? fds[1].get() : -1,
        .stderr_fd = spawn.has_stderr ? fds.back().get() : -1,
        .cgroup_directory = cgroup_ ? cgroup_->directory() : -1,
        .cgroup_procs = cgroup_ ? cgroup_->procs() : -1,
    });
}

void GuardianLoop::signal_workers(const wire::Signal& signal) {
    // A worker that has ended and is not reaped yet still owns its number, so this reaches nobody else.
    for (const auto& worker : workers_) {
        ::kill(signal.target == SignalTarget::group ? -worker.pid : worker.pid, signal.signal);
    }
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
        if (info.si_pid == 0) return;
        report_end(info.si_pid, end_of(info), now);
    }
}

void GuardianLoop::report_end(pid_t pid, const WorkerEnd& end, Instant now) {
    const auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& known) { return known.pid == pid; });
    if (worker == workers_.end()) return;  // adopted
    look_at_start(*worker);
    const auto at_ns = now.time_since_epoch().count();
    const auto* signaled = std::get_if<Signaled>(&end);
    const bool unfed = killing_ && killing_->cause == Cause::unfed && signaled && signaled->signal == SIGKILL;
    if (worker->failure)
        send(wire::Ended{.id = worker->id, .end = *worker->failure, .at_ns = at_ns});
    else
        send(wire::Ended{.id = worker->id, .pid = pid, .end = end, .at_ns = at_ns, .unfed = unfed});
    workers_.erase(worker);
}

void GuardianLoop::begin_kill(Cause cause, Instant now) {
    if (killing_) return;
    // Most trees are their leaders, or are all in the cgroup: give those a moment to be reaped before reading /proc.
    killing_ = Killing{.cause = cause, .since = now, .next_pass = now + first_pause};
    for (const auto& worker : workers_) ::kill(worker.pid, SIGKILL);
    if (cgroup_ && children_left_) kill_cgroup(cgroup_->path());
}

void GuardianLoop::continue_kill(Instant now) {
    if (!killing_) return;
    if (!children_left_) {
        killing_.reset();
        if (cgroup_) cgroup_ = WorkerCgroup::renew(std::move(*cgroup_));
        if (empty_asked_) send(wire::Emptied{});
        empty_asked_ = false;
        return;
    }
    if (now < killing_->next_pass) return;
    kill_pass();
    killing_->next_pass = now + killing_->pause;
    killing_->pause = std::min(killing_->pause * 2, pause_max);
}

void GuardianLoop::kill_pass() {
    if (cgroup_) kill_cgroup(cgroup_->path());
    wire::Stuck stuck;
    for (const auto& facts : descendants_of(::getpid(), all_processes())) {
        if (!facts.alive()) continue;
        kill_process(facts);
        stuck.pids.push_back(facts.pid);
    }
    const bool late = std::chrono::steady_clock::now() - killing_->since >= config_.stuck_after;
    if (!late || killing_->stuck) return;
    killing_->stuck = true;
    if (empty_asked_) send(stuck);
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

void GuardianLoop::say_agent_died() {
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
    config_.on_agent_death(testament_);
}

}  // namespace muster::agent
