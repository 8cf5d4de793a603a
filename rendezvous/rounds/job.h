// One job: its members, its rounds, its budget. Pure; Server (server.h) routes connections and messages here.
//
// The phase of a job is not stored. Every transition ends in settle(), which derives what is due from the members and
// the last sealed round, in this order:
//
//   over        JobEnded has gone out; remembered until all have acknowledged it, or remembered_until()
//   running     all succeeded -> over; a late joiner was gathered for -> the round ends
//   ended       every member has joined again, left, or is proven gone -> charge the budget -> over, or gathering
//   gathering   enough nodes, and the last call is over or nobody else can come -> seal
//
// STATES.md is the table of events, with the reason for each cell. Only end_round() ends a round, only seal() seals
// one, and only lose() declares a member lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/events/goodput_ledger.h"
#include "rendezvous/events/job_counters.h"
#include "rendezvous/rounds/ledgers/seen_ledger.h"
#include "rendezvous/rounds/ledgers/step_ledger.h"
#include "rendezvous/rounds/ledgers/tier_ledger.h"
#include "rendezvous/rounds/ledgers/yielding_jobs.h"
#include "rendezvous/rounds/member.h"
#include "rendezvous/rounds/sealed_round.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/rounds/terms.h"

namespace muster::rendezvous {

struct JobFacts;  // job_record.h
struct KeptJob;

/// The time of a step and its results.
struct Turn {
    Instant now;
    ServerStep& step;

    void send(ConnectionId to, native::Message message) const {
        if (to != 0) step.actions.push_back(SendTo{{to}, std::move(message)});
    }
    /// For the log and the events.
    void tell(EventKind kind, std::string text, EventFacts facts = {}) const {
        step.why.push_back({.kind = kind, .text = std::move(text), .facts = std::move(facts)});
    }
    /// For the events alone: too frequent for the log, or the log has it in other words.
    void note(EventKind kind, std::string text, EventFacts facts = {}) const {
        step.why.push_back(
            {.kind = kind, .text = std::move(text), .facts = std::move(facts), .place = EventPlace::stream_only});
    }
};

/// The facts about a node in an event. Host and pid may be those of the node that it replaces, as in a container that
/// was restarted: only the number of a member tells them apart.
EventFacts facts_of(const NodeIdentity& node);
EventFacts facts_of(const Member& member);
std::string_view name(native::RoundEndReason reason);
std::string_view name(native::JobOutcome outcome);

/// What a daemon knows when it starts.
struct DaemonStart {
    Instant at;
    bool knows_all = false;  ///< its kept state has every job that may run
};

class Job {
  public:
    /// `terms` are the first agent's and valid.
    Job(std::string id, const ServerConfig& config, native::JobTerms terms, DaemonStart start);
    /// Restores the job from an earlier daemon's records (job_keep.cpp).
    Job(const ServerConfig& config, KeptJob kept, Instant now);

    // ---- messages of agents; `from_agent` is the incarnation. The first two return false when refused: nothing has
    // changed, but that a refused Resume may hold back the seal (claimed_until_) ----
    /// A join that may start the job again is held back (job_new_start.cpp) until take_released() returns it.
    bool on_join(const Arrival& arrival, const native::Join& join, const Turn& turn);
    bool on_resume(const Arrival& arrival, const native::Resume& resume, const Turn& turn);
    void on_report(Incarnation from_agent, const native::WorkersFailed& failed, const Turn& turn);
    void on_report(Incarnation from_agent, const native::WorkersSucceeded& succeeded, const Turn& turn);
    void on_report(Incarnation from_agent, const native::RoundReport& report, const Turn& turn);
    void on_report(Incarnation from_agent, const native::WorkersSeen& seen, const Turn& turn);
    void on_report(Incarnation from_agent, const native::StandbysSeen& seen, const Turn& turn);
    void on_report(Incarnation from_agent, const native::Leave& leave, const Turn& turn);
    void on_report(Incarnation from_agent, const native::EndAcknowledged&, const Turn& turn);
    void on_agent_died(Incarnation incarnation, const native::AgentDied& died, const Turn& turn);

    /// `from` receives the CommandAnswer; for a fault, after its agent has answered.
    void on_command(ConnectionId from, const native::Command& command, const Turn& turn);
    void on_report(Incarnation from_agent, const native::FaultAnswer& answer, const Turn& turn);

    /// A known agent uses another connection. False: that connection is not newer than its current one (another process
    /// uses its incarnation). Closes an older connection.
    bool take_connection(const Arrival& arrival, const Turn& turn);
    /// A heartbeat. By how much it is later than the pace, or 0. Nothing: the agent is no member.
    std::optional<Duration> on_heard(Incarnation incarnation, const Turn& turn);
    void on_connection_ended(Incarnation incarnation, ConnectionId connection, const Turn& turn);
    /// The daemon's own loop was late by this much. Beyond a fifth of the lease, all leases restart. `what` is the log
    /// line's subject and verb; empty: it was told.
    void on_stall(Duration late, std::string_view what, const Turn& turn);
    /// Decisions were held back for this long: the deadlines for agents' answers start now.
    void on_decisions_freed(Duration held, const Turn& turn);
    /// A torchrun agent at this address waits for a job of this name in the store.
    void on_torchrun(const std::string& peer, const Turn& turn);
    /// Applies expired deadlines.
    void on_elapsed(const Turn& turn);
    /// The events since the last call are this job's.
    void take_events(const Turn& turn);
    /// The records changed by the calls above; deletions of all records when the job is forgotten.
    void keep_records(const Turn& turn);

    [[nodiscard]] Instant deadline() const;
    /// True when the job is over and acknowledged (or timed out), or has permanently no members: the server drops it.
    [[nodiscard]] bool forgotten() const { return forgotten_; }
    /// Neither over nor only remembered: workers of it, or of its next run, may run, here or soon.
    [[nodiscard]] bool is_alive() const;
    [[nodiscard]] bool knows(Incarnation incarnation) const { return members_.contains(incarnation); }
    /// Without a secret: whether this agent's membership permits the command.
    [[nodiscard]] bool may_command(Incarnation incarnation, const native::Command& command) const;

    /// How firmly it is held when the daemon serves too many jobs.
    [[nodiscard]] JobHold hold() const;
    /// Forgets the job, and closes its agents' connections, because of `why`.
    void give_way(const std::string& why, const Turn& turn);

    /// Held-back joins to be judged again: by this job, or by a new one of its name after it is forgotten.
    std::vector<HeldJoin> take_released();
    [[nodiscard]] Round next_round() const { return next_round_; }
    /// The number of the previous job's last round under this name: numbers only grow.
    void number_rounds_from(Round first) { next_round_ = std::max(next_round_, first); }

    // ---- for status.cpp and the records ----
    [[nodiscard]] const std::string& id() const { return id_; }
    [[nodiscard]] const native::JobTerms& terms() const { return terms_; }
    [[nodiscard]] const std::map<Incarnation, Member>& members() const { return members_; }
    /// For tests: whether what is maintained beside the members says the same as they do.
    [[nodiscard]] bool indexes_agree() const;
    [[nodiscard]] const SealedRound& round() const { return round_; }
    [[nodiscard]] std::uint32_t restarts_used() const { return restarts_used_; }
    /// With a window, those before it do not count.
    [[nodiscard]] std::uint32_t restarts_left(Instant now) const;
    [[nodiscard]] const std::optional<native::JobEnded>& ending() const { return ending_; }
    [[nodiscard]] std::string waiting_for(Instant now) const;
    /// The last step of the slowest rank in the round. -1: not all ranks have reported one.
    [[nodiscard]] std::int64_t slowest_step() const;
    /// The newest checkpoint, as the running round or else the last ended one reported it. -1: unknown.
    [[nodiscard]] std::int64_t checkpoint_step() const {
        const auto newest = std::max(round_.checkpoint_step, steps_.checkpoint_step());
        return newest >= 0 ? newest : checkpoint_step_;
    }
    [[nodiscard]] const GoodputLedger& goodput() const { return goodput_; }
    [[nodiscard]] const JobCounters& counters() const { return counters_; }
    [[nodiscard]] const StepLedger& steps() const { return steps_; }
    [[nodiscard]] const TierLedger& tiers() const { return tiers_; }
    [[nodiscard]] Duration since_1970(Instant at) const { return at.time_since_epoch() + config_.to_wall_clock; }

  private:
    /// How many members are in which place; maintained by set_place and set_connection, so that settle() need not
    /// iterate.
    struct Tally {
        std::uint32_t gathered = 0;  ///< waiting, connected
        std::uint32_t away = 0;      ///< waiting, but without a connection just now
        std::uint32_t fresh = 0;     ///< gathered, newly started, and never assigned a round
        std::uint32_t hosts = 0;     ///< gathered, and this daemon is part of its launcher
        std::uint32_t running = 0;
        std::uint32_t succeeded = 0;
        std::uint32_t draining = 0;
        std::uint32_t unreported = 0;  ///< draining, and the RoundReport is still to come
        std::uint32_t lost = 0;
        std::uint32_t doubtful = 0;  ///< of the draining and the lost: those that are not `sealed`
        std::uint32_t excluded = 0;  ///< of the gathered, those that are set aside
        std::uint32_t doubted = 0;   ///< of these, those that their health check has set aside
        std::uint32_t parked = 0;    ///< waiting, connected, and parked by their health check
    };

    using Members = std::map<Incarnation, Member>;

    /// Contact with the last sealed round as a whole.
    struct Reachability {
        bool anybody = false;                    ///< at least one of its members is connected and not silent
        Instant last_received = Instant::min();  ///< of all of its members
    };

    // job_new_start.cpp: agents that may start the job again
    bool hold_back(const Arrival& arrival, const native::Join& join, const Turn& turn);
    bool take_held_connection(const Arrival& arrival, const Turn& turn);
    void refuse_duplicate(const Arrival& arrival, const NodeIdentity& here, const Turn& turn);
    void close_replaced(ConnectionId connection, const Turn& turn);
    [[nodiscard]] std::string why_held(const native::Join& join, Instant now) const;
    [[nodiscard]] bool any_connected() const;
    bool hold_claim(const Arrival& arrival, const native::Join& join, bool resumes, const Turn& turn);
    bool is_refused(const Arrival& arrival, const native::Join& join, const Turn& turn);
    [[nodiscard]] bool believes(const Arrival& arrival, Round last) const;

    // job_settle.cpp: the one place where the phase changes
    void settle(const Turn& turn);
    void settle_doubtful(const Turn& turn);
    [[nodiscard]] Duration doubt_lasts(bool proven, Duration stop_grace) const;
    [[nodiscard]] Instant abandoned_at() const;
    [[nodiscard]] Instant remembered_until() const;
    bool settle_over(const Turn& turn);
    bool settle_running(const Turn& turn);
    bool settle_ended(const Turn& turn);
    void settle_gathering(const Turn& turn);
    void gather_joiners(const Turn& turn);
    bool may_seal(const Turn& turn);
    /// Why this daemon itself seals no round yet.
    enum class Hold { none, given_up, start };
    [[nodiscard]] Hold hold_at(Instant now) const;
    [[nodiscard]] bool lacks_host() const;
    void end_round(native::RoundEndReason reason, std::string why, const Turn& turn);
    void finish(native::JobOutcome outcome, std::string why, const Turn& turn);
    void tell_end(const Arrival& arrival, const Turn& turn) const;
    [[nodiscard]] native::JobEnded end_for_strangers() const;
    [[nodiscard]] Verdict verdict() const;

    // job_budget.cpp: what the ended round costs
    void decide_budget(const Turn& turn);
    [[nodiscard]] bool budget_spent();
    /// True when too many restarts brought no newer checkpoint. Counts, so call it once per round.
    [[nodiscard]] bool in_crash_loop();
    [[nodiscard]] std::string why_crash_loop() const;
    void note_progress();
    /// The first cause is a worker that requested no restart.
    [[nodiscard]] bool is_final_failure() const;
    [[nodiscard]] bool failed_early() const;
    [[nodiscard]] std::string why_no_restart() const;
    [[nodiscard]] std::string restarts_text() const;
    [[nodiscard]] Member* culprit();
    bool note_loss();
    [[nodiscard]] Member* successor_of(const Failure& lost);
    [[nodiscard]] bool is_judged() const;
    /// True: a host was lost that has been the first cause of a round's end before.
    bool judge_nodes(const Turn& turn);
    void leave_out_numbers(Round count);
    void remember_node(const Member& gone, const Turn& turn);
    void recall_node(Member& newcomer);
    [[nodiscard]] bool fails_too_often(const Member& member) const;
    [[nodiscard]] std::string exclusion_reason(const Member& member) const;
    [[nodiscard]] std::vector<std::string> notes_on_nodes(const std::vector<Member*>& sealed) const;

    // job_command.cpp: commands
    native::CommandAnswer drain_node(const native::Command& command, const Turn& turn);
    native::CommandAnswer notify(const native::Command& command, const Turn& turn);
    void pass_on_notice(Member& member, const Turn& turn);
    void set_noticed(Member& member, bool noticed);
    Result<Member*> find_node(const std::string& name);
    [[nodiscard]] bool left_for_drain() const;

    // job_fault.cpp: injected faults
    std::optional<native::CommandAnswer> inject_fault(ConnectionId from, const native::Command& command,
                                                      const Turn& turn);
    native::CommandAnswer fault_on_daemon(const native::Command& command, const Turn& turn) const;
    Result<Member*> find_rank(std::uint32_t rank);
    [[nodiscard]] static std::string explained(const Member& member, std::string how, Instant now);

    // job_seal.cpp
    void forget_last_round();
    void seal(const Turn& turn);
    [[nodiscard]] std::vector<Member*> chosen();
    [[nodiscard]] bool is_host(const Member& member) const;
    [[nodiscard]] std::vector<std::string> notes_on_last_round() const;
    [[nodiscard]] Duration heartbeat() const;
    [[nodiscard]] std::string note_on_lease(std::uint32_t size) const;
    [[nodiscard]] std::string why_next_round() const;
    [[nodiscard]] std::vector<std::string> notes_on_changes(const std::vector<Member*>& sealed,
                                                            const std::vector<std::uint32_t>& ranks) const;
    [[nodiscard]] std::string holder_of(std::uint32_t group_rank) const;
    void send_assignment_again(Member& member, const Turn& turn);

    // job_keep.cpp
    [[nodiscard]] JobFacts facts() const;
    /// Of the groups of failures and of whereabouts; 0: there are none.
    [[nodiscard]] std::uint64_t groups_revision() const;
    void keep(std::string key, std::string value, std::string& known, const Turn& turn);
    void drop_records(const Turn& turn);

    // job_health.cpp: nodes that their own health check found sick
    void judge_health(Member& member, const Turn& turn);
    void set_health(Member& member, Health health);
    [[nodiscard]] static std::string why_parked(const Member& member);
    [[nodiscard]] std::string why_goes_on(const Member& member) const;
    [[nodiscard]] std::vector<std::string> notes_on_health(const std::vector<Member*>& sealed);
    [[nodiscard]] std::string parked_nodes() const;

    // job_full.cpp: nodes of another job
    void refuse_others(const Turn& turn);
    bool refuse_late(const Arrival& arrival, const native::Join& join, const Turn& turn);
    [[nodiscard]] std::string why_other(std::string_view what, const Member& here, const NodeIdentity& node,
                                        const native::Join& join) const;
    [[nodiscard]] bool takes_surplus() const;
    [[nodiscard]] bool was_here(const Member& member) const;
    [[nodiscard]] bool follows_former(const NodeIdentity& node) const;

    // job_seen.cpp
    void succeed(Member& member, const Turn& turn);
    void note_steps(Member& member, const Turn& turn);
    void count_stepping(Member& member, const Turn& turn);
    [[nodiscard]] EventFacts spent_facts() const;
    [[nodiscard]] std::int64_t hung_ms(Instant now) const;
    [[nodiscard]] std::int64_t detecting_ms(Instant now) const;
    void note_tiers(const Turn& turn);
    [[nodiscard]] std::int64_t first_step() const;
    void tell_checkpoints(const StepLedger::News& news, const Turn& turn);
    void tell_hang(StepLedger::Hang hang, const Turn& turn);
    void tell_progress(const Turn& turn);
    [[nodiscard]] std::int64_t last_step() const;
    void send_job_seen(const Turn& turn);

    // job_waiting.cpp: progress messages
    void send_waiting(const Turn& turn);
    std::string note_waiting(const Turn& turn);
    [[nodiscard]] std::string awaited(Instant now) const;
    [[nodiscard]] std::string strangers() const;
    [[nodiscard]] std::uint32_t room() const;
    [[nodiscard]] std::uint32_t wanted() const;

    // job_silence.cpp: leases
    void judge_timeouts(const Turn& turn);
    [[nodiscard]] bool may_have_promised(const Member& member) const;
    [[nodiscard]] Instant given_up_have_stopped_at() const;
    void note_parting(const Member& member, Instant now);
    [[nodiscard]] Instant due_at(const Member& member) const;
    [[nodiscard]] bool is_spared(const Member& member, const Reachability& reachability, Instant now) const;
    [[nodiscard]] Instant given_up_at(const Reachability& reachability) const;
    void lose(Members::iterator lost, const Turn& turn);
    [[nodiscard]] Reachability reachability(Instant now) const;
    void heard(Member& member, Instant now);
    void rearm_leases(Instant now);
    void check_again_at(Instant when);
    [[nodiscard]] static std::string lost_how(const Member& member, std::string how, Instant now);
    void blame_node(const Member& member, const std::string& how, Instant now);
    void report_lost_workers(const Member& member, Instant now);

    // job_resume.cpp: agents that reconnect with running workers
    void wait_for_refused(const Arrival& arrival, const native::Resume& resume, bool is_held, const Turn& turn);
    void resume_known(Member& member, const native::Resume& resume, const Turn& turn);
    void adopt(const Arrival& arrival, const native::Resume& resume, const Turn& turn);
    void take_back(const Arrival& arrival, const native::Resume& resume, const Turn& turn);
    Member& add_resumed(const Arrival& arrival, const native::Resume& resume, const Turn& turn);
    void learn_round(const Arrival& arrival, const native::Resume& resume, const Turn& turn);
    [[nodiscard]] bool agrees(const native::Resume& resume) const;
    void note_claim(Member& member, const Turn& turn);
    void agree(const Turn& turn);
    void believe_alone(const Turn& turn);

    // job.cpp
    void note_known(const Member& member, const Turn& turn);
    void tell_joined(const Member& member, const Turn& turn);
    void tell_inherited(const Member& member, const Turn& turn) const;
    [[nodiscard]] EventFacts terms_facts() const;
    bool count_failure(Failure failure);
    void note_failure(Failure failure, const Turn& turn);
    Member& add_member(const Arrival& arrival, const native::Join& join, const Turn& turn);
    void erase(Members::iterator gone, const Turn& turn, EventKind told = EventKind::node_gone);
    /// The members of the running round, with running or successful workers.
    [[nodiscard]] std::vector<const Member*> there_by_rank() const;
    void send_peers(const Turn& turn) const;
    void send_peers_to(const Member& member, const Turn& turn) const;
    [[nodiscard]] bool knows_tree() const;
    void set_place(Member& member, Place place);
    void set_connection(Member& member, ConnectionId connection, std::uint32_t number);
    void count(const Member& member, int by);
    [[nodiscard]] std::optional<native::Refused> objection(const Arrival& arrival, const native::Join& join) const;
    [[nodiscard]] const Member* another_program(const Arrival& arrival, const native::Join& join) const;
    void join_again(Member& member, const native::Join& join, const Turn& turn);
    void departed(Members::iterator gone, native::RoundEndReason reason, const std::string& told, const Turn& turn);
    [[nodiscard]] bool in_running_round(const Member& member) const {
        return member.place == Place::running || member.place == Place::succeeded;
    }
    /// The world of a fixed job has one size.
    [[nodiscard]] std::uint32_t nodes_needed() const {
        return terms_.fixed_world ? terms_.nodes_max : terms_.nodes_min;
    }
    [[nodiscard]] Duration lease() const { return std::chrono::milliseconds(terms_.lease_ms); }
    [[nodiscard]] Duration last_call() const { return std::chrono::milliseconds(terms_.last_call_ms); }
    [[nodiscard]] Duration lost_timeout() const { return std::chrono::milliseconds(terms_.lost_timeout_ms); }

    std::string id_;
    const ServerConfig& config_;
    native::JobTerms terms_;
    std::string terms_by_;              ///< the host whose join set the terms
    Instant no_seal_before_;            ///< except for StartHold::until_full
    Instant taught_until_;              ///< until then an agent may say which round runs that this daemon does not know
    Instant doubt_ends_ = no_deadline;  ///< the first `doubt_ends` of members that are not `sealed`
    bool taught_ = false;               ///< restored from agents' Resume: members may be missing

    Members members_;
    Tally tally_;
    /// By group rank, the members of the running round whose workers run or have succeeded; maintained as the tally is.
    std::map<std::uint32_t, const Member*> there_;
    /// In a fixed world: the node ranks of the connected members, and who has them; maintained as the tally is.
    std::set<std::pair<std::int32_t, Incarnation>> rank_holders_;
    std::vector<NodePast> pasts_;  ///< failures of hosts whose agents are gone, inherited by the next agent there
    std::uint64_t next_arrival_ = 1;
    struct LostMember {
        std::string host;
        std::int32_t group_rank = 0;
        std::uint64_t arrival = 0;
    };
    /// members of the last round that are no more, until its budget is settled
    std::vector<LostMember> lost_of_round_;

    SealedRound round_;
    SeenLedger seen_;  ///< of that round's workers, while it runs
    GoodputLedger goodput_;
    JobCounters counters_;
    StepLedger steps_;
    TierLedger tiers_;
    Instant tiers_noted_at_{};
    Round next_round_ = 0;
    std::uint32_t restarts_used_ = 0;
    std::vector<Instant> charged_at_;     ///< those of them that the budget's window still covers; empty without one
    std::int64_t checkpoint_step_ = -1;   ///< the newest that the last ended round told of
    std::uint32_t restarts_stalled_ = 0;  ///< in a row, since that one

    /// no member of the running round is heard, so none is judged: the fault may be this daemon's
    bool all_silent_ = false;
    /// Until then a closed connection does not shorten its member's lease, because this daemon's own stall may have
    /// broken it.
    Instant forgiving_until_ = Instant::min();
    bool call_open_ = false;  ///< enough nodes are gathered and the last call runs (or a joiner's, in a running round)
    Instant call_ends_ = no_deadline;
    bool short_of_nodes_ = true;  ///< the gathering had fewer than the minimum: a last call follows when it has them

    /// A fault that an agent was asked to inject, and has not answered yet.
    struct PendingFault {
        std::uint32_t number = 0;
        Incarnation agent = 0;
        native::Fault fault;
        ConnectionId asked_by = 0;
        std::uint32_t asked_as = 0;  ///< the number of the command
    };
    std::vector<PendingFault> pending_faults_;
    std::uint32_t last_fault_ = 0;

    Instant next_check_ = no_deadline;                ///< when somebody's silence must be judged at the latest
    Instant reports_awaited_since_ = Instant::min();  ///< a round's end, or this daemon's start where it was later
    bool waiting_changed_ = false;
    Hold hold_told_ = Hold::none;            ///< The one that waiting nodes and events were last told of.
    std::string waiting_told_;               ///< what note_waiting() compares, since the seal
    std::vector<std::string> torchruns_at_;  ///< addresses of waiting torchrun agents, since the last seal
    std::string last_refusal_;               ///< why the last node was refused, for the progress messages
    Instant waiting_sent_at_ = Instant::min();

    std::optional<native::JobEnded> ending_;
    Instant ended_at_;
    Instant empty_since_ = no_deadline;      ///< when the last member was lost; no_deadline while there are members
    bool left_ = false;                      ///< the last member to go left of its own will
    std::vector<std::string> ended_on_;      ///< the hosts of those who were members then
    std::vector<std::string> former_hosts_;  ///< of nodes that were in a round and are gone, oldest first
    std::map<ConnectionId, HeldJoin> held_;
    Instant claims_until_ = no_deadline;  ///< until then agents with other terms are held; no_deadline: there are none
    /// Until then workers of a round may run whose agent was refused, or is held; nobody else has named a round.
    Instant claimed_until_ = Instant::min();
    /// Standstills of this daemon up to here are counted in claimed_until_.
    Instant claim_counted_at_ = Instant::min();
    Instant noticed_at_ = no_deadline;        ///< the workers of the running round were told last
    std::string notice_why_;                  ///< with these words
    Instant notice_lasts_until_ = Instant{};  ///< until then another notice is the same one
    bool announced_ = false;                  ///< JobForgotten has gone out
    bool forgotten_ = false;
    Instant settled_at_ = Instant::min();  ///< deadlines up to here have taken effect

    bool unkept_ = false;                 ///< something has happened since the records were written
    std::set<Incarnation> unkept_nodes_;  ///< members that have changed since
    std::vector<Incarnation> gone_;       ///< members with a record that are no more
    std::string record_;                  ///< as last written; each member has its own
    std::string failures_record_;
    std::uint64_t failures_revision_ = 0;  ///< of that record
    std::string groups_record_;
    std::uint64_t groups_revision_ = 0;  ///< of that record
};

}  // namespace muster::rendezvous
