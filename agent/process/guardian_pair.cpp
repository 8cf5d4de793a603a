#include "agent/process/guardian_pair.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <utility>

#include "agent/process/process_tree.h"
#include "agent/process/worker_cgroup.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/log.h"

namespace muster::agent {

namespace asio = boost::asio;
namespace wire = guardian_wire;

namespace {

constexpr Duration clean_up_max = 2s;  ///< Time after a guardian's loss in which its tree must end.
constexpr Duration clean_up_pause = 2ms;
constexpr Duration quit_timeout = 2s;
/// In an agent's life. Whatever kills guardians as fast as they come must not be fought for ever.
constexpr int reserve_forks_max = 100;

WorkerEnd end_of_status(int status) {
    if (WIFEXITED(status)) return Exited{WEXITSTATUS(status)};
    return Signaled{.signal = WTERMSIG(status), .core_dumped = WCOREDUMP(status) != 0};
}

/// True when the child has ended before `deadline`, and is reaped.
bool await_child(pid_t pid, int pidfd, Instant deadline) {
    for (;;) {
        const auto reaped = ::waitpid(pid, nullptr, WNOHANG);
        if (reaped == pid || (reaped < 0 && errno == ECHILD)) return true;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        // Without a pidfd (old kernels) the loop looks every 5 ms.
        pollfd ended{pidfd, POLLIN, 0};
        ::poll(&ended, 1, static_cast<int>(pidfd >= 0 ? left.count() : std::min<std::int64_t>(5, left.count())));
    }
}

}  // namespace

GuardianPair::GuardianPair(asio::io_context& context, GuardianHandle guardian)
    : context_(context),
      cgroup_(std::move(guardian.cgroup)),
      serving_{.pid = guardian.pid,
               .pidfd = std::move(guardian.pidfd),
               .link = std::make_shared<GuardianLink>(context, std::move(guardian.socket))},
      clean_up_timer_(context) {}

void GuardianPair::begin() {
    listen();
    serving_.link->begin();
    ask_for_reserve();
}

void GuardianPair::listen() {
    serving_.link->on_message = [this](const wire::Message& message) {
        if (const auto* news = std::get_if<wire::ReserveForked>(&message))
            begotten(*news);
        else if (on_message)
            on_message(message);
    };
    serving_.link->on_lost = [this](std::string why) { lose(std::move(why)); };
}

void GuardianPair::end() {
    on_message = nullptr;
    on_reaped = nullptr;
    on_lost = nullptr;
    clean_up_timer_.cancel();
    const auto deadline = std::chrono::steady_clock::now() + quit_timeout;
    serving_.link->send(wire::Quit{});
    serving_.link->close();
    if (reserve_) reserve_->link->close();
    const bool ended = await_child(serving_.pid, serving_.pidfd.get(), deadline);
    if (reserve_ && reserve_->pid > 0) await_child(reserve_->pid, reserve_->pidfd.get(), deadline);
    if (ended && state_ != State::changing) return remove_cgroups(cgroup_);
    if (!ended) {
        log(LogLevel::warning, "the guardian (pid ", serving_.pid,
            ") has not exited: it is killed now, with all remaining processes of the workers");
        ::kill(serving_.pid, SIGKILL);
    }
    reserve_.reset();  // it is to go too
    const auto last = std::chrono::steady_clock::now() + clean_up_max;
    while (!kill_and_reap_orphans() && std::chrono::steady_clock::now() < last) ::poll(nullptr, 0, 2);
    remove_cgroups(cgroup_);
}

void GuardianPair::send(const wire::Message& message, std::vector<FileDescriptor> fds) {
    if (state_ == State::serving) serving_.link->send(message, std::move(fds));
}

void GuardianPair::set_death_notice(std::string bytes) {
    death_notice_ = std::move(bytes);
    send(wire::DeathNotice{death_notice_});
}

void GuardianPair::remove_after_death(std::string folder) {
    folder_ = std::move(folder);
    send(wire::Folder{folder_});
}

void GuardianPair::ask_for_reserve() {
    if (reserve_ || state_ != State::serving || reserve_forks_ == reserve_forks_max) return;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
    ++reserve_forks_;
    reserve_ =
        Guardian{.pid = 0, .pidfd = {}, .link = std::make_shared<GuardianLink>(context_, FileDescriptor(ends[0]))};
    reserve_->link->on_lost = [this](const std::string&) { reserve_lost(); };
    reserve_->link->begin();
    std::vector<FileDescriptor> theirs;
    theirs.emplace_back(ends[1]);
    serving_.link->send(wire::ForkReserve{}, std::move(theirs));
}

void GuardianPair::begotten(const wire::ReserveForked& begotten) {
    if (begotten.pid != 0) {
        auto pidfd = open_pidfd(begotten.pid);
        if (reserve_) {
            reserve_->pid = begotten.pid;
            reserve_->pidfd = std::move(pidfd);
        } else {  // it was quicker to die than its birth to be told
            await_child(begotten.pid, pidfd.get(), std::chrono::steady_clock::now() + clean_up_pause);
            ask_for_reserve();
        }
        return;
    }
    if (!reserve_) return;
    log(LogLevel::info, "no second guardian could be forked (", errno_text(begotten.error_number),
        "); this node leaves the job if the first one is killed");
    reserve_->link->close();
    reserve_.reset();
}

void GuardianPair::reserve_lost() {
    const auto gone = std::exchange(reserve_, std::nullopt);
    if (!gone || gone->pid == 0) return;  // Begotten will say more
    await_child(gone->pid, gone->pidfd.get(), std::chrono::steady_clock::now() + clean_up_pause);
    ask_for_reserve();
}

void GuardianPair::reap_left_behind() {
    if (state_ != State::serving || (reserve_ && reserve_->pid == 0)) return;
    auto ended = all_processes();
    std::erase_if(ended, [&, own = ::getsid(0)](const ProcessFacts& facts) {
        return facts.alive() || facts.parent != ::getpid() || facts.session == own || facts.pid == serving_.pid ||
               (reserve_ && facts.pid == reserve_->pid);
    });
    // A guardian that lives now had its workers when the others were read: none of these is a worker.
    siginfo_t end{};
    constexpr int look = WEXITED | WNOHANG | WNOWAIT;
    if (::waitid(P_PID, static_cast<id_t>(serving_.pid), &end, look) != 0 || end.si_pid != 0) return;
    for (const auto& facts : ended) ::waitpid(facts.pid, nullptr, WNOHANG);
}

void GuardianPair::lose(std::string why) {
    if (state_ != State::serving)
        return;  // given up, and now its connection ends: a second clean-up would hit the next
    lost_why_ = std::move(why);
    lost_at_ = std::chrono::steady_clock::now();
    state_ = State::changing;
    // It may be stopped instead of dead: then its workers have to go all the same.
    if (serving_.pid > 0) ::kill(serving_.pid, SIGKILL);
    clean_up(lost_at_ + clean_up_max);
}

void GuardianPair::clean_up(Instant deadline) {
    const bool empty = kill_and_reap_orphans();
    if (empty || std::chrono::steady_clock::now() >= deadline) return change(empty);
    call_after(clean_up_timer_, clean_up_pause, [self = shared_from_this(), deadline] {
        if (self->on_lost) self->clean_up(deadline);
    });
}

bool GuardianPair::kill_and_reap_orphans() {
    if (!cgroup_.empty()) kill_cgroup(cgroup_);
    bool empty = true;
    auto all = all_processes();
    // The guardians and each worker began sessions of their own. What is in ours was started by somebody else, or runs
    // beside the workers (side_process.h), and is left alone with all that it has started.
    std::erase_if(all, [own = ::getsid(0), reserve = reserve_ ? reserve_->pid : 0](const ProcessFacts& facts) {
        return facts.session == own || facts.pid == reserve;
    });
    for (const auto& facts : descendants_of(::getpid(), std::move(all))) {
        empty = false;
        if (facts.alive()) signal_process(facts, SIGKILL);
        int status = 0;
        if (facts.parent != ::getpid() || ::waitpid(facts.pid, &status, WNOHANG) != facts.pid) continue;
        if (on_reaped) on_reaped(facts.pid, end_of_status(status));
    }
    return empty;
}

void GuardianPair::change(bool empty) {
    remove_cgroups(cgroup_);
    // Beside what could not be removed nothing new may run. What killed the one may have killed the other.
    const bool replaced = empty && reserve_ && reserve_->pid > 0 && ::waitpid(reserve_->pid, nullptr, WNOHANG) == 0;
    state_ = replaced ? State::serving : State::none;
    if (replaced) {
        serving_.link->close();
        serving_ = *std::exchange(reserve_, std::nullopt);
        listen();
        serving_.link->send(wire::Serve{cgroup_});
        if (!death_notice_.empty()) send(wire::DeathNotice{death_notice_});
        if (!folder_.empty()) send(wire::Folder{folder_});
        ask_for_reserve();
    }
    const auto keep = shared_from_this();  // the owner may end us in its handler
    if (on_lost) on_lost(lost_why_, lost_at_, replaced);
}

}  // namespace muster::agent
