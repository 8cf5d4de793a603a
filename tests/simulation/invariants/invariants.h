// The truth about all jobs of a world, seen from above, and the invariants (house numbers S1..S9 and the budget's).
//
// The parts of the world report what really happened (a process started, a message left the daemon); nothing here asks
// a core what it believes. L1..L3 are about time and are the world's own (world.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/rounds/server.h"
#include "tests/simulation/chronicle.h"
#include "tests/simulation/processes/guardian.h"
#include "tests/simulation/scenario.h"

namespace muster::simulation {

/// One agent of the world: what it is, and what has befallen it.
struct AgentTruth {
    std::size_t job = 0;
    std::string name;  ///< "job0/n2#1"
    std::uint64_t host = 0;
    std::uint32_t slots = 1;
    std::uint32_t restarts_max = 0;  ///< of its terms
    std::string role;
    std::optional<Moment> gone{};  ///< since when it is finished, killed, or without power
    bool parked = false;           ///< waits as a spare
    bool left = false;             ///< was told to stop, or left
    bool may_be_surplus = false;   ///< beside a full job of a fixed size it is refused: its arguments are its own
    bool stranger = false;         ///< does not know the job's secret
    Round knows = no_round;        ///< the last round it was told to be in
    Moment last_trouble{-1};       ///< when something other than the daemon's end last befell it or its link
    Moment heard_daemon{-1};       ///< when the daemon's last message reached it; negative: none has
    Duration silence_before{};     ///< how long it had heard nothing until then
    bool hosts = false;            ///< its launcher serves the rendezvous
    std::string finding{};         ///< of its health check, as its last Join that counts has it
    /// Of the Join before that, where the last one crossed its assignment: the daemon still goes by this one.
    std::string kept_finding{};
    bool goes_on = false;       ///< since then, more nodes of the job reported the same than may park
    std::string parked_for{};   ///< what the daemon last told it to be parked for, and has not taken back
    bool in_trouble = false;    ///< stopped or cut off right now
    Moment stopped_until{-1h};  ///< by SIGSTOP; never: it still is

    /// For what its last Join reports.
    [[nodiscard]] bool is_parked() const { return !parked_for.empty() && !finding.empty(); }
};

struct RoundTruth {
    std::map<std::uint32_t, native::Assigned> told;  ///< by group rank
    std::map<std::uint32_t, Incarnation> members;    ///< by group rank
    std::set<Incarnation> delivered;                 ///< whose agents know of the round
    Moment sealed{};
    std::uint32_t alive_count = 0;   ///< processes, grandchildren included
    std::uint32_t worker_count = 0;  ///< of these, workers
    std::uint32_t failed_count = 0;  ///< workers that ended badly by themselves
    std::optional<native::RoundEndReason> ended;
    bool failed_early = false;    ///< somebody told of a failure that a restart only repeats
    bool failed_finally = false;  ///< somebody told of a worker that requested no restart
    bool half_told = false;       ///< the daemon died before every member knew of it
};

struct JobTruth {
    std::string name;
    native::JobTerms terms;
    std::uint64_t life = 0;  ///< of the daemon, as far as this job's memory goes
    /// Numbers may begin again when a daemon that remembers nothing meets nobody who does; `life` tells them apart.
    std::map<std::pair<std::uint64_t, Round>, RoundTruth> rounds;
    std::set<std::pair<std::uint64_t, Round>> running;  ///< those with a live process
    std::optional<Round> last_sealed;                   ///< in this life of the daemon, or reported to it
    std::map<Round, std::uint64_t> heard;               ///< those reported, with heard_count() at the first time
    std::optional<std::uint32_t> last_restart_count;    ///< in this life
    std::optional<native::RoundEndReason> last_end;     ///< of the last sealed round
    Moment last_end_at{};                               ///< when the daemon first said so
    std::vector<Moment> charges;                ///< ends of rounds that cost a restart; with a window, in this life
    std::optional<native::JobOutcome> outcome;  ///< in this life
    bool ever_ended = false;
    bool taught = false;             ///< by agents, in this life, before it sealed anything
    bool ending_remembered = false;  ///< the last life's end may still be told to those who come late
    Moment last_newcomer{-1};
};

/// Why an agent put an end to workers that had not ended by themselves.
enum class DoomCause {
    round_ended,
    job_ended,
    drain,
    refused,
    fenced,
    lost,
    worker_ended,
    guardian_lost,
    stop,
    unfed,
    other
};

class Invariants {
  public:
    Invariants(const EventQueue& events, Chronicle& chronicle, Duration lease, bool calm_connects)
        : events_(events), chronicle_(chronicle), lease_(lease), calm_connects_(calm_connects) {}

    std::size_t add_job(std::string name, native::JobTerms terms);
    void newcomer(Incarnation incarnation, AgentTruth truth);
    [[nodiscard]] AgentTruth& agent(Incarnation incarnation) { return agents_.at(incarnation); }
    [[nodiscard]] const AgentTruth* find(Incarnation incarnation) const {
        const auto found = agents_.find(incarnation);
        return found != agents_.end() ? &found->second : nullptr;
    }
    [[nodiscard]] const JobTruth& job(std::size_t index) const { return jobs_[index]; }
    [[nodiscard]] RoundTruth* round_of(Incarnation incarnation, Round round);

    // -- processes (guardian.h) --
    void process_started(Incarnation agent, Round round, std::int32_t pid, ProcessKind kind);
    void process_ended(Incarnation agent, Round round, std::int32_t pid);
    void process_held(std::int32_t pid);
    void process_resumed(Incarnation agent, Round round, std::int32_t pid);
    void worker_failed(Incarnation agent, Round round);
    void end_reported(Incarnation agent, Round round, std::int32_t pid);
    /// All workers of this node have exited 0. What they left behind is no part of a running round (S8), but has to be
    /// gone when the agent joins again (S4).
    void through(Incarnation agent, Round round);

    // -- the daemon --
    /// `goes_on`: from kept state, so that it is the same daemon for all that is promised.
    void daemon_started(bool goes_on);
    void daemon_ended();
    void daemon_paused();
    void daemon_continued() { daemon_back_ = events_.now(); }
    // -- several daemons, of which one leads --
    /// The number of the new leader's reign. It goes on from the state of the one before.
    std::uint64_t reign_began();
    void reign_ended(std::uint64_t reign);
    void reign_speaks(std::uint64_t reign);
    [[nodiscard]] std::uint64_t reign_count() const { return reign_; }
    void daemon_heard(rendezvous::ConnectionId connection, const native::Message& message);
    /// Messages of agents, in all lives of all daemons.
    [[nodiscard]] std::uint64_t heard_count() const { return heard_count_; }
    /// `held_since`: it was decided when so many messages had been heard, and waited until the state was kept.
    void on_daemon_message(const rendezvous::SendTo& said, std::optional<std::uint64_t> held_since);
    void job_forgotten(const std::string& name);
    void jobs_kept(const std::set<std::string>& names);
    void daemon_step_over();
    void connection_over(rendezvous::ConnectionId connection) { connections_.erase(connection); }
    void check_unsent(std::size_t bytes);

    // -- agents --
    void assigned(Incarnation agent, const native::Assigned& assignment);
    /// The agent says that nothing of its runs any more: it joins, perhaps with workers that are held, or it finishes.
    enum class MayHold { no, yes };
    void drained(Incarnation agent, MayHold may);
    void doomed(Incarnation agent, Round round, DoomCause cause, const native::Message* said);
    void acted_after_finish(Incarnation agent);
    void trouble(Incarnation agent);
    /// The daemon has heard it, and nothing has befallen it or its links for long.
    [[nodiscard]] bool healthy(Incarnation agent) const;
    /// It is healthy, and its connects have not been lost for so long that the daemon may have given it up.
    [[nodiscard]] bool must_be_known(Incarnation agent) const;
    /// Bytes of the daemon have reached it.
    void heard(Incarnation agent);

    // -- health checks (invariants_health.cpp) --
    /// A node of any job is parked for its finding, and that is no more than the breaker allows.
    [[nodiscard]] bool any_parked() const;
    [[nodiscard]] bool any_parked(std::size_t job) const;
    [[nodiscard]] bool may_count(const AgentTruth& agent) const;
    [[nodiscard]] std::uint32_t parked_max(std::size_t job) const;

    /// After every event.
    void check();

  private:
    struct Talk {
        Incarnation incarnation = 0;
        std::uint32_t number = 0;  ///< how many connections the agent had opened with it
        bool counts = true;        ///< no newer one of the same agent has spoken, and it is not its guardian's
        std::size_t job = 0;
    };
    struct ProcessTruth {
        Incarnation agent = 0;
        std::pair<std::uint64_t, Round> round;
        bool ended = false;
        bool leftover = false;  ///< its node is through
        bool held = false;      ///< it has left its round in place
        int reported_count = 0;
        ProcessKind kind = ProcessKind::worker;
    };

    [[nodiscard]] std::pair<std::uint64_t, Round> key_of(Incarnation agent, Round round) const;
    void leave_round(std::int32_t pid, ProcessTruth& process);
    void check_held();
    [[nodiscard]] bool overtaken(const Talk& talk) const;
    [[nodiscard]] bool replaced(const Talk& talk) const;
    void replace_older(const Talk& speaking);
    void begin_life(JobTruth& job);
    void check_seal(JobTruth& job, Round number, RoundTruth& round);
    void check_ranks(const JobTruth& job, Round number, const RoundTruth& round);
    void check_budget(const JobTruth& job, Round number, const RoundTruth& round);
    void note_charge(JobTruth& job, Round number, const RoundTruth& round);
    [[nodiscard]] static std::uint32_t charges_at(const JobTruth& job, Moment at, std::int64_t drift_ppm);
    void check_stranger(const Talk& talk, const native::Message& said);
    void check_left_out(const JobTruth& job, Incarnation incarnation);
    void check_outcome(JobTruth& job, const native::JobEnded& ended);
    void joined(Incarnation incarnation, const native::Join& join);
    void told_waiting(Incarnation agent);
    void told_parked(Incarnation incarnation, const std::string& why, bool held_back);
    void took_part(Incarnation incarnation, bool held_back);
    void forget_parked(const JobTruth& job);
    [[nodiscard]] bool connected(Incarnation incarnation) const;
    [[nodiscard]] bool member_trouble(const RoundTruth& round, Moment since) const;
    [[nodiscard]] bool gave_up(const AgentTruth& agent) const;
    [[nodiscard]] bool job_trouble(std::size_t job, Moment since) const;
    [[nodiscard]] bool unconfirmed(const RoundTruth& round, const AgentTruth& agent) const;
    [[nodiscard]] bool outvoted(const RoundTruth& round, const AgentTruth& agent) const;
    [[nodiscard]] bool excused(const RoundTruth& round, const AgentTruth& agent, DoomCause cause,
                               const native::Message* said) const;
    void on_assigned(Talk& talk, native::Assigned assigned, std::optional<std::uint64_t> held_since);
    [[nodiscard]] static bool is_known(const JobTruth& job, Round number, std::optional<std::uint64_t> held_since);
    void check_secret(std::size_t job, Round number, const RoundTruth& round);
    void violated(std::string_view invariant, std::string what) {
        chronicle_.violated(std::string(invariant), std::move(what));
    }

    const EventQueue& events_;
    Chronicle& chronicle_;
    Duration lease_;
    bool calm_connects_;  ///< connects are neither refused nor lost in this world
    std::vector<JobTruth> jobs_;
    /// What the nodes of a round share, and of which job, life and round it is.
    std::map<std::string, std::tuple<std::size_t, std::uint64_t, Round>> secrets_;
    std::map<Incarnation, AgentTruth> agents_;
    std::map<rendezvous::ConnectionId, Talk> connections_;
    std::map<std::int32_t, ProcessTruth> processes_;
    struct Held {
        Incarnation agent = 0;
        Moment since{};
    };
    std::map<std::int32_t, Held> held_;  ///< of agents that have drained their round
    std::set<std::pair<std::size_t, Round>> sealed_in_step_;
    bool state_kept_ = false;
    std::uint64_t heard_count_ = 0;
    std::uint64_t reign_ = 0;
    bool reigned_ = false;  ///< and that one has not ended
    Moment daemon_started_{};
    Moment daemon_back_{-1h};      ///< went on after it had stood still
    Moment daemon_failed_{-1h};    ///< was killed or stood still
    Moment daemon_relapsed_{-1h};  ///< failed again while its agents were still coming back to it
};

}  // namespace muster::simulation
