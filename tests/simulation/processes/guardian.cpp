#include "tests/simulation/processes/guardian.h"

#include <algorithm>
#include <csignal>

namespace muster::simulation {

Guardian::Guardian(EventQueue& events, Chronicle& chronicle, ProcessWitness& witness, Random random, Setting setting)
    : events_(events),
      chronicle_(chronicle),
      witness_(witness),
      random_(random),
      setting_(std::move(setting)),
      hunger_(events, [this] { starve(); }) {}

/// Commands arrive in order, each a little later than it was given.
void Guardian::command(std::function<void()> work) {
    last_command_ = std::max(last_command_, events_.now() + random_.between(Duration{10us}, Duration{300us}));
    events_.at(last_command_, [this, work = std::move(work)] {
        if (alive_ && agent_there_) work();
    });
}

/// Reports too.
void Guardian::report(agent::ProcessEvent event) {
    last_report_ = std::max(last_report_, events_.now() + random_.between(Duration{10us}, Duration{300us}));
    events_.at(last_report_, [this, event = std::move(event)] {
        if (agent_there_ && on_event) on_event(event);
    });
}

void Guardian::start(std::vector<agent::WorkerCommand> commands) {
    command([this, commands = std::move(commands), round = round_] {
        for (const auto& one : commands) spawn(one.local_rank, round);
    });
}

void Guardian::spawn(std::uint32_t local_rank, Round round) {
    WorkerScript script = setting_.script(round, local_rank);
    if (!script.starts) {
        chronicle_.count(Happening::worker_not_started);
        chronicle_.tell(setting_.name, " local rank ", local_rank, " of round ", round, " does not start");
        witness_.worker_failed(round, 0);
        witness_.end_reported(round, 0);
        report(agent::WorkerEnded{.local_rank = local_rank,
                                  .pid = 0,
                                  .end = NotStarted{.error_number = 2, .stage = "execvpe"},
                                  .at = setting_.clock->local(events_.now()),
                                  .stderr_tail = {}});
        return;
    }
    const std::int32_t pid = setting_.next_pid();
    const Process worker{.pid = pid, .local_rank = local_rank, .round = round, .script = script};
    processes_.push_back(worker);
    witness_.process_started(round, pid, ProcessKind::worker);
    chronicle_.tell(setting_.name, " worker ", pid, " of round ", round, " started");
    report(agent::WorkerStarted{local_rank, pid});
    if (script.lives != never) plan_own_end(worker, script.lives);
    if (script.leaves_round_within != never)
        say(worker, random_.between(Duration{1ms}, Duration{30ms}), agent::KeepWord::can);
    if (script.leaves_grandchild) spawn_grandchild(worker, false);
    if (script.leaves_group) spawn_grandchild(worker, true);
}

void Guardian::spawn_grandchild(const Process& worker, bool in_group) {
    Process grandchild = worker;
    grandchild.pid = setting_.next_pid();
    grandchild.leader = false;
    grandchild.in_group = in_group;
    processes_.push_back(grandchild);
    witness_.process_started(worker.round, grandchild.pid, ProcessKind::grandchild);
}

Guardian::Process* Guardian::find(std::int32_t pid) {
    const auto found = std::find_if(processes_.begin(), processes_.end(),
                                    [pid](const Process& process) { return process.pid == pid; });
    return found == processes_.end() ? nullptr : &*found;
}

void Guardian::plan_end(std::int32_t pid, Duration after, WorkerEnd how, Cause cause) {
    events_.after(after, [this, pid, how = std::move(how), cause] {
        const Process* const process = find(pid);
        if (process != nullptr && process->alive) end(pid, how, cause);
    });
}

/// calm_down() may change its mind meanwhile, and the round may be another one by then.
void Guardian::plan_own_end(const Process& process, Duration after) {
    events_.after(after, [this, pid = process.pid, turn = process.turn] {
        const Process* const now = find(pid);
        if (now != nullptr && now->alive && now->turn == turn) end(pid, now->script.end, Cause::itself);
    });
}

void Guardian::end(std::int32_t pid, WorkerEnd how, Cause cause) {
    Process* const process = find(pid);
    if (process == nullptr || !process->alive) return;
    process->alive = false;
    const Process gone = *process;
    std::erase_if(processes_, [pid](const Process& one) { return one.pid == pid; });
    chronicle_.tell(setting_.name, gone.leader ? " worker " : " grandchild ", pid, " of round ", gone.round,
                    " ended: ", describe(how), cause == Cause::itself ? "" : " (stopped)");
    witness_.process_ended(gone.round, pid);
    if (gone.in_group && !group_left(gone)) report(agent::GroupEmpty{gone.local_rank});
    if (!gone.leader) return;
    if (cause == Cause::itself && !gone.held && !succeeded(how)) {
        chronicle_.count(std::holds_alternative<Signaled>(how) ? Happening::worker_died_by_signal
                                                               : Happening::worker_exited_nonzero);
        witness_.worker_failed(gone.round, pid);
    }
    const bool anything_left = std::any_of(processes_.begin(), processes_.end(), [&gone](const Process& one) {
        return one.local_rank == gone.local_rank && one.round == gone.round;
    });
    if (anything_left) chronicle_.count(Happening::worker_left_grandchild);
    if (setting_.bugs.loses_end && random_.chance(200)) return;
    for (int times = setting_.bugs.reports_end_twice ? 2 : 1; times > 0; --times) {
        if (agent_there_) witness_.end_reported(gone.round, pid);
        report(agent::WorkerEnded{.local_rank = gone.local_rank,
                                  .pid = pid,
                                  .end = how,
                                  .at = setting_.clock->local(events_.now()),
                                  .stderr_tail = {},
                                  .unfed = cause == Cause::unfed,
                                  .orphaned = cause == Cause::guardian_lost,
                                  .group_left = group_left(gone)});
    }
}

/// Whether anything of this process's group lives. (Of an ended one's.)
bool Guardian::group_left(const Process& gone) const {
    return std::any_of(processes_.begin(), processes_.end(), [&gone](const Process& one) {
        return (one.leader || one.in_group) && one.local_rank == gone.local_rank && one.round == gone.round;
    });
}

void Guardian::signal_leaders(int signal) {
    command([this, signal] {
        for (const Process& process : std::vector<Process>(processes_))
            if (process.leader && !process.stays) signal_one(process, signal);
    });
}

void Guardian::signal_group(std::uint32_t local_rank, int signal) {
    command([this, local_rank, signal] {
        chronicle_.count(Happening::group_signalled);
        // A grandchild in a session of its own is in nobody's group.
        for (const Process& process : std::vector<Process>(processes_))
            if ((process.in_group || process.leader) && process.local_rank == local_rank) signal_one(process, signal);
    });
}

void Guardian::signal_one(const Process& process, int signal) {
    if (signal == SIGKILL) {
        end(process.pid, Signaled{.signal = SIGKILL}, Cause::signal);
    } else if (process.script.ignores_sigterm) {
        chronicle_.count(Happening::worker_ignored_sigterm);
    } else {
        plan_end(process.pid, process.script.stops_within, Signaled{.signal = signal}, Cause::signal);
    }
}

void Guardian::kill_tree() {
    const auto number = ++kill_count_;
    command([this, number] {
        // The answer to one before is none: others are to be killed by now.
        const auto answer = [this, number] {
            if (number == kill_count_) report(agent::TreeEmpty{});
        };
        if (setting_.bugs.claims_empty_tree) return answer();
        kill_everything(Cause::signal, Spare::kept);
        when_empty(answer, Spare::kept);
    });
}

/// None here stands still for so long.
void Guardian::kill_guardian() {
    events_.after(100us, [this] {
        if (!agent_there_) return;
        killed();
        report(agent::TreeEmpty{});
    });
}

/// A killed process takes a moment to go.
void Guardian::kill_everything(Cause cause, Spare spare) {
    for (const Process& process : processes_) {
        if (spare == Spare::kept && process.stays) continue;
        plan_end(process.pid, random_.between(Duration{20us}, Duration{3ms}), Signaled{.signal = SIGKILL}, cause);
    }
}

void Guardian::when_empty(std::function<void()> then, Spare spare) {
    const auto is_left = [spare](const Process& process) { return spare == Spare::nobody || !process.stays; };
    if (std::none_of(processes_.begin(), processes_.end(), is_left)) return then();
    events_.after(500us, [this, spare, then = std::move(then)]() mutable {
        if (alive_) when_empty(std::move(then), spare);
    });
}

void Guardian::feed() {
    command([this] {
        if (setting_.bugs.never_starves) return;
        const Instant unfed_at = setting_.clock->local(events_.now()) + setting_.unfed_after;
        hunger_.set(setting_.clock->moment(unfed_at));
    });
}

void Guardian::starve() {
    if (!alive_ || !agent_there_ || processes_.empty()) return;
    chronicle_.count(Happening::guardian_killed_unfed);
    chronicle_.tell(setting_.name, " guardian: unfed, kills the workers");
    kill_everything(Cause::unfed);
}

void Guardian::agent_gone(std::function<void()> empty) {
    agent_there_ = false;
    // The end of the agent's socket is seen a little later.
    events_.after(random_.between(Duration{50us}, Duration{5ms}), [this, empty = std::move(empty)]() mutable {
        if (!alive_) return;
        kill_everything(Cause::signal);
        when_empty(std::move(empty));
    });
}

void Guardian::killed() {
    if (!alive_) return;
    chronicle_.count(Happening::guardian_killed);
    alive_ = random_.chance(800);
    chronicle_.tell(setting_.name, " guardian killed",
                    alive_ ? "; another one takes over" : ", and no other stands by");
    if (worker_alive(round_)) witness_.worker_failed(round_, 0);
    // The agent, a subreaper too, adopts what is left, kills it, and only then tells of the loss.
    for (const Process& process : std::vector<Process>(processes_)) {
        end(process.pid, Signaled{.signal = SIGKILL}, Cause::guardian_lost);
    }
    hunger_.set(never);
    report(agent::GuardianLost{
        .why = "it was killed by signal 9 (SIGKILL)", .at = setting_.clock->local(events_.now()), .replaced = alive_});
}

void Guardian::power_lost() {
    alive_ = false;
    agent_there_ = false;
    for (const Process& process : std::vector<Process>(processes_)) {
        end(process.pid, Signaled{.signal = SIGKILL}, Cause::signal);
    }
}

void Guardian::peer_vanished(Round round, Duration after) {
    for (Process& process : processes_) {
        // One that can be kept waits for the agent's word.
        if (process.round != round || !process.leader || process.script.leaves_round_within != never) continue;
        process.script.end = Exited{1};
        plan_own_end(process, after);
    }
}

void Guardian::calm_down() {
    for (Process& process : processes_) process.script.end = Exited{0};
}

bool Guardian::anything_alive() const {
    return !processes_.empty();
}

bool Guardian::worker_alive(Round round) const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [round](const Process& process) { return process.round == round; });
}

}  // namespace muster::simulation
