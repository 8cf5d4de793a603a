// Decides which nodes are lost, and from when on no worker of a lost node can be running (S8).
//
//   0            the node's last message
//   0.45 lease   it has received no answer for this time: it asks whether all of its round have lost the daemon too
//   0.9 lease    it has killed its workers, unless all of its round have promised
//   1.0 lease    this daemon declares it lost: its round ends
//   1.1 lease    a round may be sealed without it
//
// Its own clock starts earlier than ours (at the sending of its last answered message), and a tenth of a lease absorbs
// clocks of different speed. If no node of a round is heard, the fault may be on this side, and every agent keeps its
// workers as long as all others have lost us too. Then no node is judged before lost_timeout, when the agents time out
// as well.
#include <algorithm>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"

namespace muster::rendezvous {

using native::RoundEndReason;

namespace {

/// Many nodes are judged in one pass over the members, not each in its own.
constexpr Duration silence_check_min = 5ms;

}  // namespace

void Job::heard(Member& member, Instant now) {
    if (all_silent_ && may_have_promised(member)) {
        // The silence was ours: everybody gets a whole lease to be heard again.
        all_silent_ = false;
        rearm_leases(now);
    }
    member.last_received = now;
    member.judged_at = now + lease();
}

void Job::rearm_leases(Instant now) {
    for (auto& [incarnation, member] : members_) {
        member.last_received = now;
        member.judged_at = now + lease();
    }
    forgiving_until_ = next_check_ = now + lease();
}

void Job::check_again_at(Instant when) {
    next_check_ = std::min(next_check_, when);
}

/// The others of the round keep their workers only while this one too has lost the daemon. One that had succeeded and
/// gone is asked no more, also when it comes back. Of a round that this daemon learned it does not know who had gone.
bool Job::may_have_promised(const Member& member) const {
    if (member.round == no_round || member.round != round_.number) return false;
    const auto& without = round_.taught.claim_count > 0 ? round_.through : round_.through_gone;
    return !without.contains(member.group_rank);
}

Job::Reachability Job::reachability(Instant now) const {
    Reachability reachability;
    for (const auto& [incarnation, member] : members_) {
        if (!may_have_promised(member)) continue;
        reachability.last_received = std::max(reachability.last_received, member.last_received);
        reachability.anybody = reachability.anybody || (member.connected() && now - member.last_received < lease() / 2);
    }
    return reachability;
}

/// When this member's silence takes effect, if its round is heard at all.
Instant Job::due_at(const Member& member) const {
    return member.place == Place::lost ? member.last_received + lease() + lease() / 10 : member.judged_at;
}

/// Nobody of its round is heard, and its workers may run: it is not to be judged by the lease.
bool Job::is_spared(const Member& member, const Reachability& reachability, Instant now) const {
    const bool workers_may_run = member.place == Place::running || member.place == Place::lost;
    return workers_may_run && !reachability.anybody && now < given_up_at(reachability);
}

Instant Job::given_up_at(const Reachability& reachability) const {
    return reachability.last_received + lost_timeout() + lease() / 10;
}

void Job::note_parting(const Member& member, Instant now) {
    if (member.round == round_.number && member.place != Place::waiting) round_.parted_at = now;
}

/// From when on a node that was given up, was never heard by this daemon, or was refused, has no workers, whoever else
/// went: it may rely for a lease on the promise of one that went. A member that has joined again had waited until then.
Instant Job::given_up_have_stopped_at() const {
    const auto& taught = round_.taught;
    const bool is_one_missing = round_.gave_up || (taught.claim_count > 0 && taught.claim_count < round_.node_count);
    if (!is_one_missing || round_.parted_at == Instant::min()) return claimed_until_;
    const bool has_waited = std::ranges::any_of(members_, [this](const auto& entry) {
        return entry.second.place == Place::waiting && may_have_promised(entry.second);
    });
    return has_waited ? claimed_until_ : std::max(claimed_until_, round_.parted_at + lease() + lease() / 10);
}

void Job::judge_timeouts(const Turn& turn) {
    if (turn.now < next_check_ || ending_) return;
    const auto before = reachability(turn.now);
    std::vector<Incarnation> due;
    for (const auto& [incarnation, member] : members_)
        if (turn.now >= due_at(member) && !is_spared(member, before, turn.now)) due.push_back(incarnation);
    for (const auto incarnation : due) lose(members_.find(incarnation), turn);

    const auto after = reachability(turn.now);
    all_silent_ = false;
    next_check_ = no_deadline;
    for (const auto& [incarnation, member] : members_) {
        const bool spared = turn.now >= due_at(member) && is_spared(member, after, turn.now);
        all_silent_ = all_silent_ || spared;
        check_again_at(spared ? given_up_at(after) : due_at(member));
    }
    next_check_ = std::max(next_check_, turn.now + silence_check_min);
}

void Job::lose(Members::iterator lost, const Turn& turn) {
    auto& member = lost->second;
    const auto silent = turn.now - member.last_received;
    const auto how = member.place == Place::lost
                         ? cat("no message for ", describe(silent), ", so its workers have stopped")
                     : member.connected() ? cat("no message for ", describe(silent))
                                          : std::string("its connection closed and it did not reconnect");
    if (member.connected()) {
        turn.step.actions.push_back(CloseConnection{member.connection, how});
        set_connection(member, 0, member.connection_number);
    }
    const bool workers_may_run =
        member.place == Place::running || (member.place == Place::draining && !member.workers_gone);
    if (!workers_may_run) {
        if (member.place != Place::succeeded || round_.running())
            turn.tell(member.place == Place::lost ? EventKind::job_note : EventKind::node_lost,
                      cat("job '", id_, "': ", label(member.node), " is gone: ", how), facts_of(member));
        left_ = false;
        if (member.place != Place::lost)
            note_parting(member, turn.now);
        else if (member.round == round_.number)
            round_.gave_up = true;
        erase(lost, turn);
        return;
    }
    const auto why = lost_how(member, how, turn.now);
    blame_node(member, why, turn.now);
    const bool running = member.place == Place::running;
    set_place(member, Place::lost);
    turn.note(EventKind::node_lost, cat("job '", id_, "': ", label(member.node), " was lost: ", why), facts_of(member));
    if (running) end_round(RoundEndReason::node_lost, cat(label(member.node), " was lost: ", why), turn);
}

/// With the ranks that are gone with it.
std::string Job::lost_how(const Member& member, std::string how, Instant now) {
    how = explained(member, std::move(how), now);
    if (member.rank_base < 0) return how;
    return cat(how, "; it had ", ranks_of_node(static_cast<std::uint32_t>(member.rank_base), member.join.slots));
}

void Job::blame_node(const Member& member, const std::string& how, Instant now) {
    if (member.round != round_.number) return;  // it went on with another round, and was missing there
    // It went somewhere between its last word and now.
    using std::chrono::nanoseconds;
    const auto from = std::chrono::duration_cast<nanoseconds>(member.last_received.time_since_epoch()).count();
    const auto to = std::chrono::duration_cast<nanoseconds>(now.time_since_epoch()).count();
    Failure failure;
    failure.kind = FailureKind::node_lost;
    failure.host = member.node.host;
    failure.role = member.join.role;
    failure.group_rank = static_cast<std::int32_t>(member.group_rank);
    failure.pid = member.node.pid;
    failure.message = member.peer.empty() ? how : cat(how, "; its address was ", member.peer);
    // By this host's clock: the node's own cannot be asked.
    const auto since_1970 = member.last_received.time_since_epoch() + config_.to_wall_clock;
    if (config_.to_wall_clock != Duration::zero())
        failure.wall_time_s = std::chrono::duration_cast<std::chrono::seconds>(since_1970).count();
    failure.at_ns = from + (to - from) / 2;
    failure.uncertainty_ns = (to - from) / 2;
    count_failure(std::move(failure));
    report_lost_workers(member, now);
}

/// What its agent had told of them stands beside where the others waited.
void Job::report_lost_workers(const Member& member, Instant now) {
    for (const auto& seen : member.workers_seen) {
        auto worker = seen.at;
        worker.state = cat("lost with its node; ", describe(now - member.workers_seen_at), " before, ", worker.state);
        if (!worker.operation.empty()) worker.state += cat(worker.inside ? ", inside " : ", after ", worker.operation);
        worker.idle_ms = 0;
        worker.inside = false;
        worker.operation.clear();
        round_.activities.add(member.node.host, std::move(worker));
    }
}

void Job::on_decisions_freed(Duration held, const Turn& turn) {
    if (ending_) ended_at_ = turn.now;
    if (round_.ended) reports_awaited_since_ = turn.now;
    on_stall(held, "this daemon could not write its state", turn);
}

void Job::on_stall(Duration late, std::string_view what, const Turn& turn) {
    if (late <= lease() / 5 || ending_) return;
    // Each of the steps that follow one standstill tells of all of it.
    if (claimed_until_ >= turn.now - late) {
        claimed_until_ += std::min(late, turn.now - claim_counted_at_);
        claim_counted_at_ = turn.now;
    }
    if (!members_.empty()) rearm_leases(turn.now);
    // The time in which a taught round's other members may come back was not theirs either.
    if (no_seal_before_ >= turn.now - late) no_seal_before_ = turn.now + lease();
    if (what.empty() || members_.empty()) return;
    turn.tell(EventKind::daemon_stalled,
              cat("job '", id_, "': ", what, " for ", describe(late), "; all leases restart"));
}

void Job::on_elapsed(const Turn& turn) {
    judge_timeouts(turn);
    settle(turn);
}

}  // namespace muster::rendezvous
