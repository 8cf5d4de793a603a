// Decides whether a job restarts after a round has ended: charges the restart budget, ends the job, or excludes a node
// from the next rounds.
//
// Decided once per round, in decide_budget(), when every member has joined again or is gone: only then is the first
// cause known.
#include <algorithm>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/ledgers/verdict.h"
#include "rendezvous/rounds/terms.h"

namespace muster::rendezvous {

using native::JobOutcome;
using native::RoundEndReason;

/// Charged only now, when all reports have arrived: failures that a lost node caused are free, and are often reported
/// before the loss.
void Job::decide_budget(const Turn& turn) {
    if (round_.settled_budget) return;
    round_.settled_budget = true;
    turn.note(EventKind::round_drained, cat("job '", id_, "': no worker of round ", round_.number, " runs any more"),
              {.step = last_step(), .checkpoint_step = round_.checkpoint_step});
    // Its failures are those of agents that nobody else knows to have been in a round.
    if (!round_.taught.agreed) return;
    const bool flaps = judge_nodes(turn);
    // Only now, because a crash reported later may have come first. Also after a node left before the others reported:
    // all of them save and leave in the same step. Not after a node joined: that is no preemption, and a worker may
    // have taken the stop signal for a notice.
    note_progress();
    if (left_for_drain()) return;
    if (round_.reason != RoundEndReason::node_joined && is_final_failure()) {
        return finish(JobOutcome::failed, why_no_restart(), turn);
    }
    const bool failed = round_.reason == RoundEndReason::worker_failed;
    const bool left = failed && round_.left && !round_.failures.has_own_fault();
    const bool lost =
        round_.reason == RoundEndReason::node_lost ||
        (failed && !left && round_.failures.first_cause(config_.victim_window).kind == FailureKind::node_lost);
    if (left || !(failed || lost)) return;
    if (!lost && failed_early()) return finish(JobOutcome::failed, why_no_restart(), turn);
    if (lost && !flaps) return;
    if (in_crash_loop()) return finish(JobOutcome::crash_loop, why_crash_loop(), turn);
    if (lost) return;
    if (!budget_spent()) {
        ++restarts_used_;
        turn.note(EventKind::job_note, cat("job '", id_, "': ", restarts_text()), {.restart_count = restarts_used_});
        if (terms_.restarts_window_ms > 0) charged_at_.push_back(round_.ended_at);
    } else {
        finish(JobOutcome::failed, why_no_restart(), turn);
    }
}

/// With a window, only younger charges count, so that a job of many weeks survives occasional failures.
bool Job::budget_spent() {
    if (terms_.restarts_window_ms == 0) return restarts_used_ >= terms_.restarts_max;
    const Duration window = std::chrono::milliseconds(terms_.restarts_window_ms);
    std::erase_if(charged_at_, [&](Instant charged) { return charged + window <= round_.ended_at; });
    return charged_at_.size() >= terms_.restarts_max;
}

std::uint32_t Job::restarts_left(Instant now) const {
    const Duration window = std::chrono::milliseconds(terms_.restarts_window_ms);
    const auto counts = [&](Instant charged) { return charged + window > now; };
    const auto used = window == Duration::zero()
                          ? restarts_used_
                          : static_cast<std::uint32_t>(std::ranges::count_if(charged_at_, counts));
    return terms_.restarts_max - std::min(terms_.restarts_max, used);
}

bool Job::is_final_failure() const {
    return !round_.failures.empty() && is_final(round_.failures.first_cause(config_.victim_window));
}

/// True when a restart would repeat the first cause: a missing module, a bad option, a full disk for the checkpoint.
bool Job::failed_early() const {
    return !terms_.restart_early_failures && round_.failures.first_cause(config_.victim_window).early;
}

std::string Job::why_no_restart() const {
    const auto& first = round_.failures.first_cause(config_.victim_window);
    const auto who = cat("rank ", first.rank, " on ", first.host);
    if (is_final_failure())
        return cat(who, saved_and_left(first.end) ? " saved and left" : " requested no restart", " (",
                   describe(first.end), ")");
    if (failed_early() && first.cause.kind == CauseKind::disk_full)
        return cat(who,
                   " could not save its checkpoint on a full disk, and a restart frees no space "
                   "(--restart-early-failures restarts anyway)");
    if (failed_early())
        return cat(who,
                   " failed before its first step, with an error that a restart would repeat "
                   "(--restart-early-failures restarts anyway)");
    if (terms_.restarts_max == 0) return "a worker failed and no restart is allowed (--max-restarts=0)";
    if (terms_.restarts_window_ms > 0)
        return cat("a worker failed and no restart is left (--max-restarts ", restart_budget(terms_), ": ",
                   charged_at_.size(), " within the last ",
                   describe(Duration(std::chrono::milliseconds(terms_.restarts_window_ms))), ", ", restarts_used_,
                   " in all)");
    return cat("a worker failed and no restart is left (", restarts_used_, " of ", terms_.restarts_max, " used)");
}

std::string Job::restarts_text() const {
    if (terms_.restarts_window_ms == 0) return cat(restarts_used_, " of ", terms_.restarts_max, " restarts used");
    return cat(restarts_used_, restarts_used_ == 1 ? " restart" : " restarts", " used (--max-restarts ",
               restart_budget(terms_), ")");
}

/// Compared with the previous round, not with all: a checkpoint in memory may be lost with its node.
void Job::note_progress() {
    if (round_.checkpoint_step > checkpoint_step_) restarts_stalled_ = 0;
    checkpoint_step_ = round_.checkpoint_step;
}

/// A node's loss is not charged, but a host that fails repeatedly would restart the job for ever: it counts here from
/// its second loss on. Different hosts lost one after the other are no loop, nor are requested changes: a node that
/// joined, left or was drained.
bool Job::in_crash_loop() {
    return terms_.stalled_restarts_max > 0 && restarts_stalled_++ >= terms_.stalled_restarts_max;
}

std::string Job::why_crash_loop() const {
    return cat("crash loop: ", terms_.stalled_restarts_max,
               terms_.stalled_restarts_max == 1 ? " restart" : " restarts in a row", " without a newer checkpoint (",
               checkpoint_step_ < 0 ? "there is none" : cat("the newest is of step ", checkpoint_step_), ")");
}

// ---- nodes that fail again and again ----

/// The node whose workers' failure ended the round; none if that failure was a victim's. For lost nodes see note_loss.
Member* Job::culprit() {
    if (round_.failures.empty()) return nullptr;
    const auto& first = round_.failures.first_cause(config_.victim_window);
    const bool own = first.kind == FailureKind::killed || first.kind == FailureKind::worker_error;
    if (!own || is_final(first)) return nullptr;
    for (auto& [incarnation, member] : members_)
        if (member.round == round_.number && static_cast<std::int32_t>(member.group_rank) == first.group_rank)
            return &member;
    return nullptr;
}

/// Notes the only lost node if it was the first cause. Several lost at once indicate the network or the power. True:
/// its host has been the first cause before.
bool Job::note_loss() {
    const auto is_loss = [](const Failure& failure) { return failure.kind == FailureKind::node_lost; };
    if (std::ranges::count_if(round_.failures.kept(), is_loss) != 1) return false;
    const auto& first = round_.failures.first_cause(config_.victim_window);
    if (!is_loss(first)) return false;
    const auto past = std::ranges::find(pasts_, first.host, &NodePast::host);
    const bool again = past != pasts_.end() || std::ranges::any_of(members_, [&](const auto& entry) {
                           return entry.second.node.host == first.host && !entry.second.first_cause_of.empty();
                       });
    if (auto* here = is_judged() ? successor_of(first) : nullptr)
        here->first_cause_of.push_back(round_.number);
    else if (past != pasts_.end())
        past->first_cause_of.push_back(round_.number);
    else
        pasts_.push_back({first.host, {round_.number}});
    return again;
}

/// The lost node itself if it is still a member, or the agent that has replaced it.
Member* Job::successor_of(const Failure& lost) {
    const auto gone = std::ranges::find_if(lost_of_round_, [&](const LostMember& one) {
        return one.host == lost.host && one.group_rank == lost.group_rank;
    });
    Member* found = nullptr;
    for (auto& [incarnation, member] : members_) {
        if (member.round == round_.number && static_cast<std::int32_t>(member.group_rank) == lost.group_rank)
            return &member;
        const bool next = gone != lost_of_round_.end() && member.node.host == gone->host && member.round == no_round &&
                          member.arrival > gone->arrival;
        if (next && (found == nullptr || member.arrival < found->arrival)) found = &member;
    }
    return found;
}

/// In a fixed world each node owns its rank, so none is excluded.
bool Job::is_judged() const {
    return terms_.node_failures_max > 0 && !terms_.fixed_world;
}

/// A restart in place cures most failures, so the first one costs a node nothing. A node is excluded while it is the
/// first cause of too many of the last rounds. As rounds pass without it, its failures expire and it may return.
bool Job::judge_nodes(const Turn& turn) {
    auto* failed = is_judged() ? culprit() : nullptr;
    if (failed != nullptr) failed->first_cause_of.push_back(round_.number);
    const bool flaps = failed == nullptr && (is_judged() || terms_.stalled_restarts_max > 0) && note_loss();
    lost_of_round_.clear();
    const auto of = is_judged() ? terms_.node_failures_of : node_failures_of_max;
    const auto oldest = round_.number - static_cast<Round>(of) + 1;
    const auto is_old = [&](Round round) { return round < oldest; };
    for (auto& past : pasts_) std::erase_if(past.first_cause_of, is_old);
    std::erase_if(pasts_, [](const NodePast& past) { return past.first_cause_of.empty(); });
    for (auto& [incarnation, member] : members_) {
        if (member.first_cause_of.empty()) continue;
        count(member, -1);
        std::erase_if(member.first_cause_of, is_old);
        const bool too_often = fails_too_often(member);
        const bool was_excluded = std::exchange(member.excluded, too_often);
        count(member, +1);
        if (too_often == was_excluded) continue;
        waiting_changed_ = true;
        turn.tell(too_often ? EventKind::node_left_out : EventKind::node_taken_back,
                  cat("job '", id_,
                      "': ", too_often ? exclusion_reason(member) : cat(label(member.node), " may take part again")),
                  facts_of(member));
    }
    return flaps;
}

/// Failures get old by the rounds that were sealed. Numbers that no round gets, because somebody has named a high one,
/// do not count.
void Job::leave_out_numbers(Round count) {
    if (count == 0) return;
    for (auto& past : pasts_)
        for (auto& failed : past.first_cause_of) failed += count;
    for (auto& [incarnation, member] : members_) {
        for (auto& failed : member.first_cause_of) failed += count;
        if (config_.keep_records && !member.first_cause_of.empty()) unkept_nodes_.insert(incarnation);
    }
}

bool Job::fails_too_often(const Member& member) const {
    return is_judged() && member.first_cause_of.size() >= terms_.node_failures_max && !is_host(member);
}

/// The next agent on the same host inherits the failures of the gone one. It may be here already.
void Job::remember_node(const Member& gone, const Turn& turn) {
    if (gone.round != no_round && gone.round == round_.number)
        lost_of_round_.push_back({gone.node.host, static_cast<std::int32_t>(gone.group_rank), gone.arrival});
    if (gone.round != no_round && std::ranges::find(former_hosts_, gone.node.host) == former_hosts_.end()) {
        if (former_hosts_.size() == former_hosts_max) former_hosts_.erase(former_hosts_.begin());
        former_hosts_.push_back(gone.node.host);
    }
    if (gone.first_cause_of.empty()) return;
    pasts_.push_back({gone.node.host, gone.first_cause_of});
    for (auto& [incarnation, member] : members_) {
        const bool is_next = member.node.host == gone.node.host && member.arrival > gone.arrival &&
                             member.round == no_round && member.first_cause_of.empty();
        if (!is_next) continue;
        count(member, -1);
        recall_node(member);
        count(member, +1);
        tell_inherited(member, turn);
        return;
    }
}

/// Several agents may share a host: each new one inherits from one that is gone.
void Job::recall_node(Member& newcomer) {
    const auto past =
        std::find_if(pasts_.begin(), pasts_.end(), [&](const NodePast& one) { return one.host == newcomer.node.host; });
    if (past == pasts_.end()) return;
    newcomer.first_cause_of = std::move(past->first_cause_of);
    newcomer.excluded = fails_too_often(newcomer);
    pasts_.erase(past);
}

std::string Job::exclusion_reason(const Member& member) const {
    return cat(label(member.node), " is excluded: it was the first cause of the end of ", member.first_cause_of.size(),
               " of the last ", terms_.node_failures_of, " rounds (--node-failures ", terms_.node_failures_max, "/",
               terms_.node_failures_of, ")");
}

/// The notes for every node about excluded nodes, and about those that are needed in spite of their failures.
std::vector<std::string> Job::notes_on_nodes(const std::vector<Member*>& sealed) const {
    std::vector<std::string> notes;
    for (const auto& [incarnation, member] : members_) {
        if (!member.excluded) continue;
        const bool takes_part = std::find(sealed.begin(), sealed.end(), &member) != sealed.end();
        notes.push_back(takes_part ? cat(label(member.node),
                                         " fails repeatedly, but takes part because without it there would be fewer "
                                         "nodes than the minimum, ",
                                         nodes_needed())
                                   : exclusion_reason(member));
    }
    return notes;
}

}  // namespace muster::rendezvous
