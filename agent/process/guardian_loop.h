// The guardian's loop after the fork: serves the agent, reaps (guardian_loop.cpp), stops and kills (guardian_stop.cpp).
// guardian.h explains the design.
//
// Every turn of the loop ends with the same three checks: is the agent dead, is the guardian unfed, are processes left
// to kill.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "agent/process/awaited_children.h"
#include "agent/process/guardian.h"
#include "agent/process/guardian_wire.h"
#include "agent/process/worker_cgroup.h"
#include "agent/process/worker_spawn.h"

namespace muster::agent {

enum class GuardianRole {
    serving,
    standing_by,  ///< Has no workers, and sends nothing when the agent dies, until it receives Serve.
};

/// The life of a guardian's process, from its fork on.
[[noreturn]] void live_as_guardian(GuardianConfig config, FileDescriptor socket, std::optional<WorkerCgroup> cgroup,
                                   GuardianRole role);

class GuardianLoop {
  public:
    GuardianLoop(GuardianConfig config, FileDescriptor socket, std::optional<WorkerCgroup> cgroup, GuardianRole role);

    /// Until the agent is gone and nothing (that can be killed) is left.
    void run();

  private:
    struct Takeover {
        guardian_wire::Spawn spawn;
        std::vector<FileDescriptor> fds;
        Instant until;
        bool reaped = false;  ///< The standby process is gone, and its number may be another's.
    };
    /// A process that has imported what a worker imports, or is about to. It belongs to no round.
    struct Standby {
        std::uint64_t id = 0;
        pid_t pid = 0;
        FileDescriptor socket;
        FileDescriptor report;              ///< As a worker's.
        std::optional<NotStarted> failure;  ///< As a worker's.
        bool ready = false;
    };
    struct Worker {
        std::uint64_t id = 0;
        pid_t pid = 0;
        FileDescriptor report;              ///< Valid while the worker is being started.
        std::optional<NotStarted> failure;  ///< Set if the start failed. Its child is not reaped yet.
        /// Set while a standby process is becoming this worker: what a normal start needs, should it not.
        std::optional<Takeover> takeover;
    };
    /// What an ended worker has left in its process group. The group keeps its leader's number from being used again.
    struct Group {
        std::uint64_t id = 0;
        pid_t number = 0;
        bool signalled = false;
    };
    /// What follows a signal that stops the workers (awaited_children.h).
    struct FollowUp {
        int signal = 0;
        Instant next_look;
        AwaitedChildren children;
    };
    enum class Cause { asked, unfed, agent_gone };
    struct Killing {
        Cause cause = Cause::asked;
        Instant since;
        Instant next_pass;
        Duration pause = 1ms;
        bool stuck = false;
    };

    void wait(Instant now);
    void read_messages(Instant now);
    void handle(const guardian_wire::Message& message, std::vector<FileDescriptor>& fds, Instant now);
    void spawn(const guardian_wire::Spawn& spawn, std::vector<FileDescriptor>& fds);
    SpawnResult try_spawn(const guardian_wire::Spawn& spawn, std::vector<FileDescriptor>& fds, int standby_fd = -1);
    void check_starts();
    void check_start(Worker& worker);
    /// True when its program runs; false while it starts, or with `failure` set.
    static bool read_start(auto& process) {
        if (!process.report.valid()) return false;
        NotStarted failure;
        const auto state = read_spawn_report(process.report.get(), failure);
        if (state == SpawnState::starting) return false;
        process.report.reset();
        if (state == SpawnState::failed) process.failure = std::move(failure);
        return state == SpawnState::running;
    }
    void start_worker(const guardian_wire::Spawn& spawn, std::vector<FileDescriptor>& fds);
    void start_standby(const guardian_wire::Spawn& spawn, std::vector<FileDescriptor>& fds);
    bool take_over(const guardian_wire::Spawn& spawn, std::vector<FileDescriptor>& fds);
    void check_takeover(Worker& worker, Instant now);
    void end_takeover(Worker& worker);
    void start_normally(Worker& worker);
    static std::size_t spawn_descriptors(const guardian_wire::Spawn& spawn) {
        return 1 + (spawn.has_stdout ? 1U : 0U) + (spawn.has_stderr ? 1U : 0U);
    }
    void check_standbys();
    void end_standby(std::uint64_t id);
    void report_standby_end(pid_t pid, const WorkerEnd& end, Instant now);
    [[nodiscard]] bool has_other_children() const;
    void signal_leaders(int signal);
    void signal_group(const guardian_wire::SignalGroup& signal);
    [[nodiscard]] bool is_kept(std::uint64_t id) const;
    [[nodiscard]] bool is_spared(pid_t pid) const;
    [[nodiscard]] bool is_left_to_kill() const { return children_left_ && (kept_.empty() || has_other_children()); }
    void begin_follow_up(const guardian_wire::FollowUp& wanted);
    void follow_up(Instant now);
    bool note_group(std::uint64_t id, pid_t leader);
    void check_groups();
    void fork_reserve(std::vector<FileDescriptor>& fds);
    void serve(const guardian_wire::Serve& serve);
    void reap(Instant now);
    void report_end(pid_t pid, const WorkerEnd& end, Instant now);
    void begin_kill(Cause cause, Instant now);
    void continue_kill(Instant now);
    void kill_pass();
    [[nodiscard]] bool unfed(Instant now) const {
        return last_fed_ && config_.unfed_max > 0ns && children_left_ && now - *last_fed_ >= config_.unfed_max;
    }
    [[nodiscard]] Instant next_deadline(Instant now) const;
    void send(const guardian_wire::Message& message);
    void flush();
    void report_agent_death();

    GuardianConfig config_;
    FileDescriptor socket_;
    FileDescriptor child_signals_;
    std::string cgroup_path_;  ///< Also when no new group could be made there. Empty: none.
    std::optional<WorkerCgroup> cgroup_;
    GuardianRole role_;
    std::vector<Worker> workers_;
    std::vector<Standby> standbys_;
    std::vector<std::uint64_t> kept_;  ///< Workers that stay when a round's others are stopped.
    std::vector<Group> groups_;
    std::deque<std::string> outbox_;
    std::string death_notice_;
    std::string folder_;  ///< Its empty directories are removed after the agent's death.
    std::optional<Instant> last_fed_;
    std::optional<Killing> killing_;
    std::optional<FollowUp> follow_up_;
    /// Time of the last signal to the leaders, in the unit of ProcessFacts::start_time.
    std::uint64_t signalled_ticks_ = 0;
    bool children_left_ = false;  ///< True if the last reap() left children, adopted or dead ones included.
    std::optional<std::uint64_t> empty_asked_;  ///< Number of the newest Kill, while the agent waits for Emptied.
    bool agent_gone_ = false;
    bool quitting_ = false;
};

}  // namespace muster::agent
