// Sealing a round: who is in it, with which ranks, and what they are told.
#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/assignment.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/ledgers/ranks.h"
#include "rendezvous/rounds/ledgers/verdict.h"

namespace muster::rendezvous {

namespace {

/// "1-7,12,9": in this order, also of ten thousand nodes mostly a few ranges.
std::string numbers(const std::vector<const Member*>& by_rank) {
    std::vector<std::string> ranges;
    for (std::size_t i = 0; i < by_rank.size();) {
        const auto first = by_rank[i]->arrival;
        auto last = first;
        while (++i < by_rank.size() && by_rank[i]->arrival == last + 1) ++last;
        ranges.push_back(first == last ? cat(first) : cat(first, "-", last));
    }
    return join(ranges, ",");
}

/// With the ranks of the most nodes, if those had as many as these have.
EventFacts seal_facts(const std::vector<const Member*>& by_rank, std::uint32_t nodes_max, std::uint32_t restarts_used) {
    const auto node_count = static_cast<std::int64_t>(by_rank.size());
    std::int64_t rank_count = 0;
    for (const auto* member : by_rank) rank_count += member->join.slots;
    return {.members = numbers(by_rank),
            .node_count = node_count,
            .rank_count = rank_count,
            .rank_count_max = rank_count * nodes_max / node_count,
            .restart_count = restarts_used};
}

}  // namespace

bool Job::is_host(const Member& member) const {
    return config_.embedded_for == id_ && member.join.hosts_endpoint;
}

/// An embedded daemon's own node comes first. Members of the round before follow, by their ranks; the others by
/// arrival; nodes that are to be left out last of all, and only as many as the minimum needs. In a fixed world each
/// node rank is taken once (a node's former agent and its successor may both be here for a moment).
std::vector<Member*> Job::chosen() {
    const auto order = [this](const Member& member) {
        const bool held = round_.number != no_round && member.round == round_.number;
        const bool wants = terms_.fixed_world && member.join.node_rank >= 0;
        return std::tuple(member.set_aside(), !is_host(member), !held, held ? member.group_rank : 0, !wants,
                          member.arrival);
    };
    std::vector<std::pair<decltype(order(Member{})), Member*>> ordered;
    ordered.reserve(members_.size());
    for (auto& [incarnation, member] : members_)
        if (member.place == Place::waiting && member.connected() && !member.leaving && member.health != Health::parked)
            ordered.emplace_back(order(member), &member);
    std::sort(ordered.begin(), ordered.end());
    std::vector<Member*> all;
    all.reserve(ordered.size());
    for (const auto& [place, member] : ordered) all.push_back(member);
    if (terms_.fixed_world) {
        std::vector<char> taken(terms_.nodes_max, 0);
        std::erase_if(all, [&](const Member* member) {
            if (member->join.node_rank < 0) return false;
            auto& rank = taken[static_cast<std::size_t>(member->join.node_rank)];
            return std::exchange(rank, 1) == 1;
        });
    }
    if (all.size() > terms_.nodes_max) all.resize(terms_.nodes_max);
    while (all.size() > nodes_needed() && all.back()->set_aside()) all.pop_back();
    return all;
}

/// Those that are not in the new round had ranks that others may have now, and have no workers.
void Job::forget_last_round() {
    for (auto& [incarnation, member] : members_) {
        if (member.round == round_.number || member.rank_base < 0) continue;
        member.rank_base = -1;
        member.forget_seen();
        if (config_.keep_records) unkept_nodes_.insert(incarnation);
    }
}

void Job::seal(const Turn& turn) {
    auto members = chosen();
    MUSTER_CHECK(members.size() >= nodes_needed() && members.size() <= terms_.nodes_max, members.size());
    MUSTER_CHECK(tally_.draining == 0 && tally_.lost == 0 && tally_.running == 0, tally_.draining, tally_.lost);
    std::vector<RankCandidate> candidates;
    for (const auto* member : members) {
        const bool held = round_.number != no_round && member->round == round_.number;
        candidates.push_back({held ? std::optional(member->group_rank) : std::nullopt, member->join.node_rank,
                              member->join.hosts_endpoint, member->arrival});
    }
    const auto ranks = assign_ranks(candidates);
    std::vector<std::string> notes;
    if (round_.ended) notes.push_back(why_next_round());
    for (auto& line : notes_on_health(members)) notes.push_back(std::move(line));
    for (auto& line : notes_on_nodes(members)) notes.push_back(std::move(line));
    for (auto& line : notes_on_changes(members, ranks)) notes.push_back(std::move(line));
    for (auto& line : notes_on_last_round()) notes.push_back(std::move(line));
    const auto size = static_cast<std::uint32_t>(members.size());
    if (auto line = note_on_lease(size); !line.empty()) notes.push_back(std::move(line));
    leave_out_numbers(next_round_ - round_.number - 1);
    round_ = SealedRound{};
    seen_ = SeenLedger{};
    last_refusal_.clear();
    torchruns_at_.clear();
    waiting_told_.clear();
    round_.number = next_round_++;
    round_.node_count = round_.unfinished = size;
    round_.sealed_at = turn.now;
    steps_.begin_round();
    if (config_.secret)
        round_.secret = RoundSecret::draw(
            config_.secret(id_),
            cat(round_.number, ' ', turn.now.time_since_epoch().count(), ' ', config_.secret_seed, ' ', id_));
    std::vector<Member*> sealed(members.size());  // by rank
    for (std::size_t i = 0; i < members.size(); ++i) {
        auto& member = *(sealed[ranks[i]] = members[i]);
        member.group_rank = ranks[i];
        set_place(member, Place::running);
        member.sealed = true;
        member.round = round_.number;
        member.workers_gone = member.reported = member.stepping = member.last_steps = false;
        member.forget_seen();
    }
    forget_last_round();
    call_open_ = short_of_nodes_ = all_silent_ = false;
    call_ends_ = no_deadline;
    noticed_at_ = no_deadline;
    notice_lasts_until_ = Instant{};
    no_seal_before_ = Instant::min();  // what this daemon sealed it knows

    const std::vector<const Member*> by_rank(sealed.begin(), sealed.end());
    round_.notes = notes_on_members(by_rank);
    for (auto& line : notes) round_.notes.push_back(std::move(line));
    const auto source = source_of(by_rank.front()->peer);
    round_.is_spread = std::ranges::any_of(by_rank, [&](const auto* one) { return source_of(one->peer) != source; });
    for (const auto* member : by_rank) note_known(*member, turn);
    if (terms_.fixed_world) turn.step.actions.push_back(FreshStore{id_, store_clients(by_rank)});
    auto told = assignments(by_rank, round_, restarts_used_, heartbeat());
    turn.step.actions.reserve(turn.step.actions.size() + 2 * told.size());  // an assignment and a place for each
    for (std::size_t i = 0; i < by_rank.size(); ++i) {
        sealed[i]->rank_base = told[i].rank_base;
        sealed[i]->assignment_sent = sealed[i]->connected();
        turn.send(by_rank[i]->connection, std::move(told[i]));
        send_peers_to(*sealed[i], turn);
    }
    turn.tell(EventKind::round_sealed,
              cat("job '", id_, "': round ", round_.number, " sealed with ", size, size == 1 ? " node" : " nodes", ", ",
                  restarts_text()),
              seal_facts(by_rank, terms_.nodes_max, restarts_used_));
}

Duration Job::heartbeat() const {
    return native::heartbeat_pace(lease(), round_.node_count, config_.heartbeats_per_second);
}

/// Heartbeats cannot be so slow that the daemon spends no more than a quarter of its one thread on them.
std::string Job::note_on_lease(std::uint32_t size) const {
    const auto enough = native::lease_for(size, config_.heartbeats_per_second);
    if (enough <= lease()) return {};
    const auto enough_s = (enough + 1s - 1ns) / 1s;
    return cat("the lease of ", describe(Duration{1ms} * terms_.lease_ms), " is short for ", size,
               " nodes: their heartbeats may keep the daemon too busy to hear all of them in time; start the job with "
               "--lease ",
               enough_s, " or more");
}

/// For every node's log, also a newcomer's: a round that is followed by another one has no verdict that tells of it.
std::string Job::why_next_round() const {
    using native::RoundEndReason;
    const auto& failures = round_.failures;
    auto because = round_.why;
    if (!failures.empty() &&
        (round_.reason == RoundEndReason::worker_failed || round_.reason == RoundEndReason::node_lost)) {
        const auto& first = failures.first_cause(config_.victim_window);
        because = first.rank < 0 ? sentence(first)
                                 : cat("rank ", first.rank, " on ", first.host, " failed: ", error_line(first));
    }
    return cat("round ", next_round_, " starts",
               terms_.restarts_max == 0 ? std::string() : cat(" (", restarts_text(), ")"), ": round ", round_.number,
               " ended because ", because,
               round_.checkpoint_step < 0 ? std::string()
                                          : cat("; the newest checkpoint is of step ", round_.checkpoint_step));
}

/// Who had this rank in the round before.
std::string Job::holder_of(std::uint32_t group_rank) const {
    if (const auto found = round_.gone.find(group_rank); found != round_.gone.end()) return found->second.who;
    for (const auto& [incarnation, member] : members_)
        if (member.round == round_.number && member.group_rank == group_rank) return label(member.node);
    return {};
}

std::vector<std::string> Job::notes_on_changes(const std::vector<Member*>& sealed,
                                               const std::vector<std::uint32_t>& ranks) const {
    constexpr std::size_t listed_max = 8;
    if (!round_.ended) return {};
    std::vector<std::string> lines;
    std::size_t more = 0;
    for (std::size_t i = 0; i < sealed.size(); ++i) {
        const auto& member = *sealed[i];
        const bool held = member.round == round_.number;
        if (held && member.group_rank == ranks[i]) continue;
        if (lines.size() == listed_max) {
            ++more;
            continue;
        }
        const auto who = label(member.node);
        const auto before = held ? std::string() : holder_of(ranks[i]);
        lines.push_back(held             ? cat(who, " moves from group rank ", member.group_rank, " to ", ranks[i])
                        : before.empty() ? cat(who, " joins as group rank ", ranks[i])
                        : before == who  ? cat(who, " returns as group rank ", ranks[i])
                                         : cat(who, " replaces ", before, " as group rank ", ranks[i]));
    }
    if (more > 0)
        lines.push_back(cat("and ", more, more == 1 ? " more node joins or moves" : " more nodes join or move"));
    if (sealed.size() != round_.node_count)
        lines.push_back(cat("round ", next_round_, " has ", sealed.size(), sealed.size() == 1 ? " node" : " nodes",
                            " instead of ", round_.node_count));
    return lines;
}

/// Where its ranks stood when it ended.
std::vector<std::string> Job::notes_on_last_round() const {
    using native::RoundEndReason;
    const bool failed = round_.reason == RoundEndReason::worker_failed || round_.reason == RoundEndReason::node_lost;
    if (!round_.ended || !failed) return {};
    auto lines = lines_of(round_.activities.list());
    if (!lines.empty()) lines.front() = cat("round ", round_.number, ": ", lines.front());
    return lines;
}

/// The connection broke between the seal and the answer: the same words again. Where that is impossible the round ends,
/// and the member waits for the next one: it has no workers to stop, and reports no end of a round that it never knew.
void Job::send_assignment_again(Member& member, const Turn& turn) {
    const auto by_rank = there_by_rank();
    const auto end = [&](native::RoundEndReason reason, std::string why) {
        set_place(member, Place::waiting);
        end_round(reason, std::move(why), turn);
    };
    // A member that had succeeded and is gone is missed here; nobody can start a round without it, so it is ended.
    if (by_rank.size() != round_.node_count)
        return end(native::RoundEndReason::node_lost, cat(label(member.node), " joined too late"));
    // The others have keys that this daemon cannot name: it was started with other keys of the job. Without a salt the
    // daemon that sealed the round had none.
    if (config_.secret && round_.secret.bytes.empty())
        return end(native::RoundEndReason::daemon_restarted,
                   cat("the daemon was started with ", round_.secret.salt.empty() ? "a" : "another",
                       " key of the job before ", label(member.node), " was told its rank"));
    // On the connection before it has read no notice either.
    if (!std::exchange(member.assignment_sent, true)) set_noticed(member, false);
    turn.send(member.connection, assignment(member.group_rank, by_rank, round_, restarts_used_, heartbeat()));
    send_peers_to(member, turn);
    pass_on_notice(member, turn);
}

}  // namespace muster::rendezvous
