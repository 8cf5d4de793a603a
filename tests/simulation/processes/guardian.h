// Simulated guardians and workers: a ProcessHost whose processes follow a script.
//
//   agent -> guardian -> workers -> grandchildren
//
// The guardian lives on when its agent is stopped or dead: it kills the tree when the agent is gone, or when nobody has
// fed it for 0.8 lease, and tells the daemon of an agent's death. Commands and reports take a little time each way.
#pragma once

#include <functional>
#include <vector>

#include "agent/supervision/process_host.h"
#include "agent/supervision/supervisor.h"
#include "rendezvous/base/ids.h"
#include "tests/simulation/chronicle.h"
#include "tests/simulation/host/random.h"

namespace muster::simulation {

/// What one worker will do, drawn when it starts.
struct WorkerScript {
    bool starts = true;
    Duration lives = never;  ///< from its start to its own end; never: until it is stopped
    WorkerEnd end;           ///< its own end
    bool ignores_sigterm = false;
    Duration stops_within{};               ///< from SIGTERM to its end
    bool leaves_grandchild = false;        ///< in a session of its own: only the kill of the tree reaches it
    bool leaves_group = false;             ///< a process in its group, which takes a stop signal as its leader does
    Duration leaves_round_within = never;  ///< from Hold until it is held; never: it cannot be kept
    Duration lives_held = never;           ///< from then to its own end
};

enum class ProcessKind { worker, grandchild };

/// What happened to processes in truth, for the invariants.
class ProcessWitness {
  public:
    virtual ~ProcessWitness() = default;
    virtual void process_started(Round round, std::int32_t pid, ProcessKind kind) = 0;
    virtual void process_ended(Round round, std::int32_t pid) = 0;
    /// It is held: no part of its round any more, and of none.
    virtual void process_held(std::int32_t pid) = 0;
    virtual void process_resumed(Round round, std::int32_t pid) = 0;
    /// A worker ended by itself and not well.
    virtual void worker_failed(Round round, std::int32_t pid) = 0;
    /// The agent has been told of this end (pid 0: of a worker that never started).
    virtual void end_reported(Round round, std::int32_t pid) = 0;
};

/// Planted bugs of a guardian, see sabotage.h.
struct GuardianBugs {
    bool claims_empty_tree = false;
    bool loses_end = false;
    bool reports_end_twice = false;
    bool never_starves = false;
    bool never_releases = false;
};

class Guardian final : public agent::ProcessHost {
  public:
    struct Setting {
        std::string name;  ///< for the story, e.g. "n2"
        const HostClock* clock = nullptr;
        Duration unfed_after{};
        std::function<WorkerScript(Round round, std::uint32_t local_rank)> script;
        std::function<std::int32_t()> next_pid;
        GuardianBugs bugs;
    };
    Guardian(EventQueue& events, Chronicle& chronicle, ProcessWitness& witness, Random random, Setting setting);

    // -- the agent's verbs --
    /// The round of what is started next: the simulator's own, to attribute processes.
    void set_round(Round round) { round_ = round; }
    void start(std::vector<agent::WorkerCommand> commands) override;
    void signal_leaders(int signal) override;
    void follow_up(int, agent::AwaitedTimeouts) override {}
    void remove_after_death(std::string) override {}
    void signal_group(std::uint32_t local_rank, int signal) override;
    void kill_tree() override;
    void kill_guardian() override;
    void feed() override;
    void keep(const std::vector<std::uint32_t>& local_ranks) override;

    // -- the agent's channel to its workers --
    /// Hold, to those that keep() names.
    void hold();
    /// Resumed: held workers of these local ranks enter `round`.
    void resume(const std::vector<std::uint32_t>& local_ranks, Round round);
    /// What a worker says about being kept.
    std::function<void(std::uint32_t local_rank, agent::KeepWord word)> on_keeping;

    // -- what befalls it --
    /// The agent is gone: kills the tree, then calls `empty` (unless the guardian itself is gone).
    void agent_gone(std::function<void()> empty);
    /// SIGKILL for the guardian: the workers die by their parent-death signal, the agent is told. Mostly another one
    /// takes over.
    void killed();
    /// Everything on the host stops at once, untold.
    void power_lost();
    /// A worker of `round` sees that a peer is gone, and ends with exit code 1.
    void peer_vanished(Round round, Duration after);
    /// Faults are over: no worker that runs now fails by itself any more.
    void calm_down();

    [[nodiscard]] bool anything_alive() const;
    [[nodiscard]] bool alive() const { return alive_; }
    [[nodiscard]] bool worker_alive(Round round) const;

  private:
    struct Process {
        std::int32_t pid = 0;
        std::uint32_t local_rank = 0;
        Round round = no_round;
        bool leader = true;
        bool alive = true;
        WorkerScript script;
        bool in_group = false;  ///< of a leader that it outlives
        bool stays = false;     ///< keep() names it, or what it descends from
        bool held = false;
        int turn = 0;  ///< what was planned for it in a round before is void
    };
    enum class Cause { itself, signal, unfed, guardian_lost };

    void spawn(std::uint32_t local_rank, Round round);
    void spawn_grandchild(const Process& worker, bool in_group);
    void signal_one(const Process& process, int signal);
    [[nodiscard]] bool group_left(const Process& gone) const;
    void end(std::int32_t pid, WorkerEnd end, Cause cause);
    void plan_end(std::int32_t pid, Duration after, WorkerEnd how, Cause cause);
    void plan_own_end(const Process& process, Duration after);
    void say(const Process& leader, Duration after, agent::KeepWord word);
    void become_held(std::int32_t pid, int turn);
    enum class Spare { nobody, kept };
    void kill_everything(Cause cause, Spare spare = Spare::nobody);
    void when_empty(std::function<void()> then, Spare spare = Spare::nobody);
    void starve();
    void report(agent::ProcessEvent event);
    void command(std::function<void()> work);
    Process* find(std::int32_t pid);

    EventQueue& events_;
    Chronicle& chronicle_;
    ProcessWitness& witness_;
    Random random_;
    Setting setting_;
    std::vector<Process> processes_;
    Round round_ = no_round;
    bool alive_ = true;
    bool agent_there_ = true;
    Moment last_command_{};
    Moment last_report_{};
    Alarm hunger_;
    std::uint64_t kill_count_ = 0;
};

}  // namespace muster::simulation
