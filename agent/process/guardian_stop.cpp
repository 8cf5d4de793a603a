// How a guardian ends its processes: by signals to leaders and to the groups of ended leaders, and by killing the whole
// tree until nothing is left.
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "agent/process/guardian_loop.h"
#include "agent/process/process_tree.h"

namespace muster::agent {

namespace wire = guardian_wire;

namespace {

/// Between two looks at /proc while something is still dying. Deaths themselves wake the loop.
constexpr Duration pause_max = 200ms;
constexpr Duration first_pause = 1ms;
/// Between two looks for what stopped workers wait for.
constexpr Duration follow_up_pause = 250ms;

bool group_exists(pid_t number) {
    return ::kill(-number, 0) == 0 || errno != ESRCH;
}

}  // namespace

void GuardianLoop::signal_leaders(int signal) {
    signalled_ticks_ = ticks_since_boot();
    // The signal is for the worker, whose standby process is about to become it.
    for (auto& worker : workers_)
        if (worker.takeover) end_takeover(worker);
    // A worker that has ended and is not reaped yet still owns its number, so this reaches nobody else.
    for (const auto& worker : workers_) {
        if (is_kept(worker.id)) continue;
        // Looked up before the shell hears of it: afterwards its program may have been told as part of its group as
        // well.
        const auto programs = signal == SIGINT ? programs_of_waiting_shell(worker.pid) : std::vector<pid_t>{};
        ::kill(worker.pid, signal);
        for (const auto program : programs) ::kill(program, signal);
    }
}

void GuardianLoop::begin_follow_up(const wire::FollowUp& wanted) {
    const AwaitedTimeouts patience{.idle = Duration(wanted.idle_ns), .busy = Duration(wanted.busy_ns)};
    follow_up_ = FollowUp{
        .signal = wanted.signal, .next_look = std::chrono::steady_clock::now(), .children = AwaitedChildren(patience)};
}

void GuardianLoop::follow_up(Instant now) {
    if (killing_ || workers_.empty()) follow_up_.reset();
    if (!follow_up_ || now < follow_up_->next_look) return;
    auto& [signal, next_look, children] = *follow_up_;
    next_look = now + follow_up_pause;
    auto waiters = children.told();
    for (const auto& worker : workers_)
        if (!is_kept(worker.id)) waiters.push_back(worker.pid);
    for (const auto& child : children.due(find_awaited(waiters, signalled_ticks_), now)) signal_process(child, signal);
}

bool GuardianLoop::note_group(std::uint64_t id, pid_t leader) {
    if (!group_exists(leader)) return false;
    groups_.push_back({.id = id, .number = leader});
    return true;
}

bool GuardianLoop::is_kept(std::uint64_t id) const {
    return std::ranges::find(kept_, id) != kept_.end();
}

/// A standby process, or a worker that is kept: a round's end is none of theirs.
bool GuardianLoop::is_spared(pid_t pid) const {
    const auto is_it = [&](const auto& one) { return one.pid == pid; };
    if (std::ranges::any_of(standbys_, is_it)) return true;
    const auto worker = std::ranges::find_if(workers_, is_it);
    return worker != workers_.end() && is_kept(worker->id);
}

void GuardianLoop::signal_group(const wire::SignalGroup& signal) {
    for (const auto& worker : workers_)
        if (worker.id == signal.id) ::kill(-worker.pid, signal.signal);
    for (auto& group : groups_) {
        if (group.id != signal.id) continue;
        ::kill(-group.number, signal.signal);
        group.signalled = true;
    }
}

void GuardianLoop::check_groups() {
    std::erase_if(groups_, [this](const Group& group) {
        if (group_exists(group.number)) return false;
        send(wire::GroupEmptied{group.id});
        return true;
    });
}

void GuardianLoop::begin_kill(Cause cause, Instant now) {
    // Those of a round that has ended in order stay for the next one.
    if (cause != Cause::asked) {
        end_standby(0);
        kept_.clear();
    }
    if (killing_) return;
    // Most trees are their leaders, or are all in the cgroup: give those a moment to be reaped before reading /proc.
    killing_ = Killing{.cause = cause, .since = now, .next_pass = now + first_pause};
    for (const auto& worker : workers_)
        if (!is_kept(worker.id)) ::kill(worker.pid, SIGKILL);
    // With a worker that is kept the group is not empty of it: /proc finds the others.
    if (cgroup_ && children_left_ && kept_.empty()) kill_cgroup(cgroup_->path());
}

void GuardianLoop::continue_kill(Instant now) {
    if (!killing_) return;
    if (!is_left_to_kill()) {
        killing_.reset();
        if (cgroup_ && kept_.empty()) cgroup_ = WorkerCgroup::renew(std::move(*cgroup_));
        if (empty_asked_) send(wire::Emptied{*empty_asked_});
        empty_asked_.reset();
        return;
    }
    if (now < killing_->next_pass) return;
    kill_pass();
    killing_->next_pass = now + killing_->pause;
    killing_->pause = std::min(killing_->pause * 2, pause_max);
}

void GuardianLoop::kill_pass() {
    if (cgroup_ && kept_.empty()) kill_cgroup(cgroup_->path());
    wire::Stuck stuck;
    auto all = all_processes();
    // And with them what they have started.
    std::erase_if(all, [this](const ProcessFacts& facts) { return is_spared(facts.pid); });
    for (const auto& facts : descendants_of(::getpid(), std::move(all))) {
        if (!facts.alive()) continue;
        signal_process(facts, SIGKILL);
        stuck.pids.push_back(facts.pid);
    }
    const bool late = std::chrono::steady_clock::now() - killing_->since >= config_.stuck_after;
    if (!late || killing_->stuck) return;
    killing_->stuck = true;
    if (empty_asked_) send(stuck);
}

}  // namespace muster::agent
