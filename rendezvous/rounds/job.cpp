// Events of members: joins, reports, losses. settle() derives what follows for the job.
#include "rendezvous/rounds/job.h"

#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/assignment.h"
#include "rendezvous/rounds/ledgers/verdict.h"
#include "rendezvous/rounds/terms.h"

namespace muster::rendezvous {

using native::RefusalReason;
using native::Refused;
using native::RoundEndReason;

std::string label(const NodeIdentity& node) {
    return cat(node.host, " (pid ", node.pid, ")");
}

/// A round that the daemon does not know can run for as long as agents look for a lost daemon.
Job::Job(std::string id, const ServerConfig& config, native::JobTerms terms, DaemonStart start)
    : id_(std::move(id)),
      config_(config),
      terms_(terms),
      no_seal_before_(config.start_hold == StartHold::none ? Instant::min() : start.at + lease()),
      taught_until_(start.knows_all ? Instant::min() : start.at + lost_timeout() + 2 * lease()) {}

// ---- tallies ----

void Job::count(const Member& member, int by) {
    if (config_.keep_records && by > 0) unkept_nodes_.insert(member.node.incarnation);
    const auto add = [by](std::uint32_t& tally) { tally += static_cast<std::uint32_t>(by); };
    if (in_running_round(member)) {
        if (by > 0)
            there_[member.group_rank] = &member;
        else if (const auto found = there_.find(member.group_rank); found != there_.end() && found->second == &member)
            there_.erase(found);
    }
    if (terms_.fixed_world && member.join.node_rank >= 0 && member.connected()) {
        const std::pair holder(member.join.node_rank, member.node.incarnation);
        if (by > 0)
            rank_holders_.insert(holder);
        else
            rank_holders_.erase(holder);
    }
    switch (member.place) {
        case Place::waiting:
            if (member.leaving) break;  // the job waits only for its Leave
            if (member.health == Health::parked) {
                if (member.connected()) add(tally_.parked);
                break;
            }
            add(member.connected() ? tally_.gathered : tally_.away);
            if (member.connected() && member.newly_started && member.round == no_round &&
                member.join.last_round == no_round)
                add(tally_.fresh);
            if (member.connected() && is_host(member)) add(tally_.hosts);
            if (member.connected() && member.set_aside()) add(tally_.excluded);
            if (member.connected() && member.health == Health::doubted) add(tally_.doubted);
            break;
        case Place::running: add(tally_.running); break;
        case Place::succeeded: add(tally_.succeeded); break;
        case Place::draining:
            add(tally_.draining);
            if (!member.reported) add(tally_.unreported);
            if (!member.sealed) add(tally_.doubtful);
            break;
        case Place::lost:
            add(tally_.lost);
            if (!member.sealed) add(tally_.doubtful);
            break;
    }
}

void Job::set_place(Member& member, Place place) {
    count(member, -1);
    if (member.place == Place::running && place == Place::succeeded) {
        if (round_.through.insert(member.group_rank).second) --round_.unfinished;
        member.workers_gone = true;
    }
    if (place == Place::waiting || member.place == Place::waiting) waiting_changed_ = true;
    if (place != Place::waiting) member.parked_at = 0;
    member.place = place;
    count(member, +1);
}

bool Job::indexes_agree() const {
    std::set<std::pair<std::int32_t, Incarnation>> holders;
    for (const auto& [incarnation, member] : members_)
        if (terms_.fixed_world && member.join.node_rank >= 0 && member.connected())
            holders.emplace(member.join.node_rank, incarnation);
    return holders == rank_holders_;
}

void Job::set_connection(Member& member, ConnectionId connection, std::uint32_t number) {
    count(member, -1);
    if (connection != member.connection) member.assignment_sent = false;
    member.connection = connection;
    member.connection_number = number;
    count(member, +1);
    if (member.place == Place::waiting) waiting_changed_ = true;
}

/// Its event is node_gone, unless node_left is `told`.
void Job::erase(Members::iterator gone, const Turn& turn, EventKind told) {
    const auto& member = gone->second;
    count(member, -1);
    waiting_changed_ = true;
    // Of a job that is over each node goes when it has acknowledged the end.
    if (!ending_ && told != EventKind::node_left)
        turn.note(EventKind::node_gone, cat("job '", id_, "': ", label(member.node), " is no node of it any more"),
                  facts_of(member));
    const bool was_through = member.place == Place::succeeded;
    if (was_through) round_.through_gone.insert(member.group_rank);
    if (member.round == round_.number && member.round != no_round)
        round_.gone.emplace(member.group_rank,
                            LostNode{label(member.node), member.sealed ? member.node.incarnation : 0});
    if (round_.running() && member.round == round_.number && member.place == Place::running)
        round_.gone_step = slowest_step();
    remember_node(member, turn);
    if (!member.record.empty()) gone_.push_back(member.node.incarnation);
    members_.erase(gone);
    if (members_.empty()) {
        empty_since_ = turn.now;
        next_check_ = no_deadline;  // else the next member would find it past, as after a standstill
    }
    // At the end of the job all of them go, and nobody needs a place any more.
    if (was_through && round_.running() && !ending_) send_peers(turn);
}

std::vector<const Member*> Job::there_by_rank() const {
    std::vector<const Member*> there;
    there.reserve(there_.size());
    for (const auto& [rank, member] : there_) there.push_back(member);
    return there;
}

/// While members are still to come back to this daemon it does not know the tree: the one that they know holds.
bool Job::knows_tree() const {
    return there_.size() + round_.through_gone.size() == round_.node_count &&
           std::ranges::none_of(round_.through_gone, [this](auto rank) { return there_.contains(rank); });
}

/// Sends the members of the round their places in the tree in which they ask each other if this daemon is lost. A node
/// that has succeeded and left cannot answer, and has no workers left.
void Job::send_peers(const Turn& turn) const {
    if (!knows_tree()) return;
    const auto there = there_by_rank();
    native::TreePlace place{.size = static_cast<std::uint32_t>(there.size()), .fan_out = config_.fan_out};
    const auto at = [&there](std::uint32_t position) -> const Member& { return *there[position]; };
    for (; place.position < place.size; ++place.position)
        if (const auto* member = there[place.position]; member->connected())
            turn.send(member->connection, peers(at, round_.number, place));
}

/// The same for one that was sealed or has come back. All of them may, one after another: its work grows only with the
/// nodes that have left.
void Job::send_peers_to(const Member& member, const Turn& turn) const {
    if (!knows_tree() || !in_running_round(member)) return;
    const auto& gone = round_.through_gone;
    const auto gone_before = std::distance(gone.begin(), gone.lower_bound(member.group_rank));
    const native::TreePlace place{.position = member.group_rank - static_cast<std::uint32_t>(gone_before),
                                  .size = static_cast<std::uint32_t>(there_.size()),
                                  .fan_out = config_.fan_out};
    const auto at = [&](std::uint32_t position) -> const Member& {
        auto rank = position;
        for (auto one = gone.begin(); one != gone.end() && *one <= rank; ++one) ++rank;
        return *there_.at(rank);
    };
    turn.send(member.connection, peers(at, round_.number, place));
}

Member& Job::add_member(const Arrival& arrival, const native::Join& join, const Turn& turn) {
    const auto [at, added] = members_.try_emplace(arrival.node.incarnation);
    MUSTER_CHECK(added, arrival.node.host);
    auto& member = at->second;
    member.node = arrival.node;
    member.versions = arrival.versions;
    member.peer = arrival.peer;
    member.join = join;
    member.arrival = next_arrival_++;
    member.connection_number = arrival.number;
    member.newly_started = arrival.number <= 1;
    member.connection = arrival.connection;
    member.proven = arrival.proven;
    recall_node(member);
    count(member, +1);
    heard(member, turn.now);
    check_again_at(member.judged_at);
    note_known(member, turn);
    waiting_changed_ = true;
    last_refusal_.clear();
    empty_since_ = no_deadline;
    tell_joined(member, turn);
    return member;
}

// ---- connections ----

bool Job::take_connection(const Arrival& arrival, const Turn& turn) {
    unkept_ = true;
    const auto found = members_.find(arrival.node.incarnation);
    if (found == members_.end()) return take_held_connection(arrival, turn);
    auto& member = found->second;
    if (member.connection != arrival.connection) {
        if (arrival.number <= member.connection_number) {
            refuse_duplicate(arrival, member.node, turn);
            return false;
        }
        if (member.connected()) close_replaced(member.connection, turn);
        member.peer = arrival.peer;
        member.proven = arrival.proven;
        set_connection(member, arrival.connection, arrival.number);
        note_known(member, turn);
        if (member.leaving) turn.send(member.connection, native::Drain{member.leave_reason});
        // It was already lost to the round; it must still stop its workers and join again.
        if (member.place == Place::lost) set_place(member, Place::draining);
    }
    heard(member, turn.now);
    return true;
}

void Job::note_known(const Member& member, const Turn& turn) {
    const bool is_of_round = member.sealed && member.round == round_.number;
    if (is_of_round || member.proven)
        turn.step.known.push_back({member.connection, member.proven || (is_of_round && round_.is_spread)});
}

JobHold Job::hold() const {
    if (config_.embedded_for == id_) return JobHold::firm;
    if (round_.number == no_round || round_.taught.claim_count > 0) return JobHold::unsealed;
    return members_.empty() || (ending_ && announced_) ? JobHold::empty : JobHold::firm;
}

/// Nobody is refused: who lives joins again, and may be luckier.
void Job::give_way(const std::string& why, const Turn& turn) {
    for (const auto& [incarnation, member] : members_)
        if (member.connected()) turn.step.actions.push_back(CloseConnection{member.connection, why});
    for (const auto& [connection, held] : std::exchange(held_, {}))
        turn.step.actions.push_back(CloseConnection{connection, why});
    turn.tell(EventKind::job_ended, cat("job '", id_, "' gives way to another one: ", why), {.outcome = "gave_way"});
    forgotten_ = unkept_ = true;
    if (!std::exchange(announced_, true)) turn.step.actions.push_back(JobForgotten{id_});
}

void Job::refuse_duplicate(const Arrival& arrival, const NodeIdentity& here, const Turn& turn) {
    turn.send(arrival.connection, Refused{RefusalReason::duplicate,
                                          cat("incarnation ", arrival.node.incarnation, " of ", label(arrival.node),
                                              " is already used by ", label(here), "; start the second agent again")});
}

void Job::close_replaced(ConnectionId connection, const Turn& turn) {
    turn.step.actions.push_back(CloseConnection{connection, "replaced by a newer connection of the same agent"});
}

std::optional<Duration> Job::on_heard(Incarnation incarnation, const Turn& turn) {
    const auto found = members_.find(incarnation);
    if (found == members_.end()) return std::nullopt;
    const auto silence = turn.now - std::exchange(found->second.last_received, turn.now);
    heard(found->second, turn.now);
    return std::max(silence - heartbeat(), Duration::zero());
}

void Job::on_connection_ended(Incarnation incarnation, ConnectionId connection, const Turn& turn) {
    held_.erase(connection);
    const auto found = members_.find(incarnation);
    if (found == members_.end() || found->second.connection != connection) return;
    auto& member = found->second;
    set_connection(member, 0, member.connection_number);
    member.judged_at = std::min(member.judged_at, std::max(turn.now + config_.reconnect_window, forgiving_until_));
    check_again_at(member.judged_at);
    settle(turn);
}

// ---- joining ----

/// A member of the same role that launches another program: two jobs share an id by accident. Checks only new agents,
/// and only file names, because paths may differ between hosts.
const Member* Job::another_program(const Arrival& arrival, const native::Join& join) const {
    if (join.entry.empty() || members_.contains(arrival.node.incarnation)) return nullptr;
    for (const auto& [incarnation, member] : members_)
        if (!member.join.entry.empty() && member.join.role == join.role)
            return base_name(member.join.entry) == base_name(join.entry) ? nullptr : &member;
    return nullptr;
}

std::optional<Refused> Job::objection(const Arrival& arrival, const native::Join& join) const {
    if (auto why = difference(terms_, terms_by_, join.terms, label(arrival.node)); !why.empty())
        return Refused{RefusalReason::terms_differ, std::move(why)};
    if (members_.size() >= config_.nodes_max && !members_.contains(arrival.node.incarnation))
        return Refused{RefusalReason::limit, cat("job '", id_, "' has ", members_.size(), " nodes, its maximum")};
    const auto* other = another_program(arrival, join);
    if (other != nullptr)
        return Refused{RefusalReason::job_in_use,
                       cat("job '", id_, "' is in use: ", label(other->node), " launches ", other->join.entry, " and ",
                           label(arrival.node), " launches ", join.entry, "; give this job its own --rdzv-id")};
    if (!terms_.fixed_world || join.node_rank < 0) return std::nullopt;
    // A holder without a connection may be the same node's previous agent: its successor waits.
    for (auto at = rank_holders_.lower_bound({join.node_rank, 0});
         at != rank_holders_.end() && at->first == join.node_rank; ++at) {
        if (at->second == arrival.node.incarnation) continue;
        const auto& member = members_.at(at->second);
        return Refused{RefusalReason::duplicate,
                       cat("--node-rank ", join.node_rank, " is held by ", label(member.node), " and requested by ",
                           label(arrival.node),
                           "; give each node its own rank, or, if this is another job, its own port and --rdzv-id")};
    }
    return std::nullopt;
}

/// Sends the refusal, and includes it in the progress line of the waiting nodes.
bool Job::is_refused(const Arrival& arrival, const native::Join& join, const Turn& turn) {
    auto refusal = objection(arrival, join);
    if (!refusal) return false;
    turn.send(arrival.connection, *refusal);
    if (round_.running()) return true;
    last_refusal_ = std::move(refusal->why);
    waiting_changed_ = true;
    send_waiting(turn);
    return true;
}

/// Anybody can name a number, so one far above those that this daemon knows counts only with the secret. A daemon that
/// does not know the job's round has only its agents' word.
bool Job::believes(const Arrival& arrival, Round last) const {
    const bool knows_numbers = round_.number != no_round && round_.taught.agreed;
    return last < next_round_ ||
           (last <= round_claimed_max && (arrival.proven || !knows_numbers || last - next_round_ < round_lead_max));
}

bool Job::on_join(const Arrival& arrival, const native::Join& join, const Turn& turn) {
    if (!take_connection(arrival, turn)) return false;
    // It would ignore the next round, whose number is below the one that it names.
    if (!believes(arrival, join.last_round)) {
        turn.send(arrival.connection,
                  Refused{RefusalReason::limit,
                          cat(label(arrival.node), " names ", join.last_round, " as its last round, and job '", id_,
                              "' is at round ", std::max(round_.number, Round{0}), "; start this agent again")});
        // A job that this Join has begun is none.
        if (!members_.empty() || !held_.empty()) return false;
        settle(turn);
        return true;
    }
    if (hold_back(arrival, join, turn)) {
        number_rounds_from(join.last_round + 1);
        settle(turn);
        return true;
    }
    if (ending_) {
        if (refuse_late(arrival, join, turn)) return false;
        tell_end(arrival, turn);  // a repetition, or a late joiner: the job is over
        return true;
    }
    if (join.last_round != no_round && turn.now < no_seal_before_ && hold_claim(arrival, join, false, turn)) {
        number_rounds_from(join.last_round + 1);
        settle(turn);
        return true;
    }
    if (is_refused(arrival, join, turn)) return false;
    number_rounds_from(join.last_round + 1);
    const auto found = members_.find(arrival.node.incarnation);
    if (found != members_.end())
        join_again(found->second, join, turn);
    else
        judge_health(add_member(arrival, join, turn), turn);
    settle(turn);
    return true;
}

void Job::join_again(Member& member, const native::Join& join, const Turn& turn) {
    const bool in_round = in_running_round(member);
    if (in_round && join.last_round < round_.number) return send_assignment_again(member, turn);
    // This Join crossed the assignment, which the agent still reads before the end of its round: it will start workers
    // and stop them, and only its next Join says that they have ended.
    if (member.place == Place::draining && member.assignment_sent && join.last_round < member.round) return;
    count(member, -1);
    member.join = join;
    count(member, +1);
    member.parked_at = 0;
    waiting_changed_ = true;
    if (in_round) {
        // For example fenced: it has no workers any more, so the round is over for the others too.
        const auto why = explained(member, "stopped its workers because it lost contact with the rendezvous", turn.now);
        blame_node(member, cat("it ", why), turn.now);
        turn.note(EventKind::node_lost, cat("job '", id_, "': ", label(member.node), " ", why), facts_of(member));
        set_place(member, Place::waiting);
        end_round(RoundEndReason::node_lost, cat(label(member.node), " ", why), turn);
    } else if (member.place != Place::waiting) {
        set_place(member, Place::waiting);
    }
    if (member.place == Place::waiting) judge_health(member, turn);
}

// ---- reports ----

void Job::on_report(Incarnation from_agent, const native::WorkersFailed& failed, const Turn& turn) {
    const auto found = members_.find(from_agent);
    if (found == members_.end() || ending_) return;
    auto& member = found->second;
    if (failed.round != round_.number || member.round != round_.number || member.place == Place::waiting) return;
    auto failures = failed.failures;
    if (failures.empty()) {
        auto& unknown = failures.emplace_back();
        unknown.host = member.node.host;
        unknown.message = "a worker failed";
    }
    const auto why = sentence(failures.front());
    for (auto& failure : failures) note_failure(std::move(failure), turn);
    if (round_.running()) end_round(RoundEndReason::worker_failed, why, turn);
    settle(turn);
}

void Job::on_report(Incarnation from_agent, const native::WorkersSucceeded& succeeded, const Turn& turn) {
    const auto found = members_.find(from_agent);
    if (found == members_.end() || succeeded.round != round_.number || found->second.place != Place::running) return;
    succeed(found->second, turn);
    settle(turn);
}

void Job::on_report(Incarnation from_agent, const native::RoundReport& report, const Turn& turn) {
    const auto found = members_.find(from_agent);
    if (found == members_.end() || ending_) return;
    auto& member = found->second;
    if (report.round != round_.number) return;
    // It had drained this round before the daemon that knew of its end was lost.
    if (in_running_round(member) && round_.running())
        end_round(RoundEndReason::daemon_restarted, cat(label(member.node), " had already stopped its workers"), turn);
    if (member.place != Place::draining || member.reported) return settle(turn);
    count(member, -1);
    member.reported = true;
    member.workers_gone = true;
    count(member, +1);
    if (member.round == round_.number) {
        for (const auto& failure : report.failures) note_failure(failure, turn);
        for (const auto& worker : report.activities) round_.activities.add(member.node.host, worker);
        round_.stopped_count += report.stopped_count;
        round_.checkpoint_step = std::max(round_.checkpoint_step, report.checkpoint_step);
    }
    settle(turn);
}

// ---- going ----

void Job::departed(Members::iterator gone, RoundEndReason reason, const std::string& told, const Turn& turn) {
    const auto member = gone->second;
    const bool lost = reason == RoundEndReason::node_lost;
    const auto why = lost ? lost_how(member, told, turn.now) : explained(member, told, turn.now);
    const bool workers_ran =
        member.place == Place::running || (member.place == Place::draining && !member.workers_gone);
    if (lost && workers_ran) blame_node(member, why, turn.now);
    // Its workers had stopped, by a signal to its agent, before or while the round ended.
    if (reason == RoundEndReason::node_left && member.round == round_.number) round_.left = true;
    note_parting(member, turn.now);
    left_ = reason == RoundEndReason::node_left;
    // It was lost before, by its silence.
    const auto kind = left_                         ? EventKind::node_left
                      : member.place == Place::lost ? EventKind::job_note
                                                    : EventKind::node_lost;
    turn.tell(kind, cat("job '", id_, "': ", label(member.node), left_ ? " left: " : " died: ", why), facts_of(member));
    erase(gone, turn, kind);
    if (member.place == Place::running && round_.running())
        end_round(reason, cat(label(member.node), left_ ? " left: " : " was lost: ", why), turn);
    settle(turn);
}

void Job::on_report(Incarnation from_agent, const native::Leave& leave, const Turn& turn) {
    const auto found = members_.find(from_agent);
    if (found != members_.end()) departed(found, RoundEndReason::node_left, leave.why, turn);
}

void Job::on_agent_died(Incarnation incarnation, const native::AgentDied& died, const Turn& turn) {
    const auto found = members_.find(incarnation);
    if (found == members_.end()) return;
    if (found->second.connected())
        turn.step.actions.push_back(
            CloseConnection{found->second.connection, "its guardian reported the agent's death"});
    departed(found, RoundEndReason::node_lost, died.why, turn);
}

void Job::on_report(Incarnation from_agent, const native::EndAcknowledged&, const Turn& turn) {
    const auto found = members_.find(from_agent);
    if (found == members_.end() || !ending_) return;
    erase(found, turn);
    settle(turn);
}

}  // namespace muster::rendezvous
