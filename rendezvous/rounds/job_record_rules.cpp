#include "rendezvous/rounds/job_record_rules.h"

#include <algorithm>
#include <set>

#include "rendezvous/rounds/terms.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::rendezvous {

namespace {

std::string_view impossible_in(const Member& member, const JobFacts& job, const SealedRound& round) {
    if (!wrong_with(member.join, std::uint32_t{native::peers_max}).empty()) return "a join with invalid terms";
    const bool in_round = member.place == Place::running || member.place == Place::succeeded;
    if (member.round < no_round || member.round >= job.next_round) return "a round that was never sealed";
    if (in_round && !(round.running() && member.round == round.number)) return "a place in a round that does not run";
    if (member.round != no_round && member.round == round.number && member.group_rank >= round.node_count)
        return "a rank beyond its round";
    // One that is draining may have come with terms of its own; it is asked for them again when it joins.
    const bool fixed = job.terms.fixed_world && member.place != Place::draining && member.place != Place::lost;
    if (fixed && member.join.node_rank >= static_cast<std::int64_t>(job.terms.nodes_max))
        return "a --node-rank beyond its job";
    return {};
}

}  // namespace

std::string_view impossible_in(const KeptJob& kept) {
    const auto& job = kept.facts;
    native::Join join;
    join.terms = job.terms;
    if (!wrong_with(join, std::uint32_t{native::peers_max}).empty()) return "invalid terms";
    const auto& round = kept.round;
    if (job.next_round < 0 || job.next_round > round_max || round.number < no_round || round.number >= job.next_round)
        return "round numbers that were never assigned";
    const bool sealed = round.number != no_round;
    if (sealed ? round.node_count < 1 || round.node_count > job.terms.nodes_max : round.node_count != 0 || round.ended)
        return "a round of an impossible size";
    constexpr auto time_max = std::int64_t{1} << 62;
    const auto no_time = [](auto at) { return at < -time_max || at > time_max; };
    if (std::ranges::any_of(job.charges_at_ns, no_time)) return "a restart without a time";
    if (no_time(job.round_ended_at_ns) || no_time(job.ended_at_ns) || no_time(job.noticed_at_ns))
        return "an end or a notice without a time";
    if (round.final && !round.ended) return "a last round that has not ended";
    if (!round.through_gone.empty() && *round.through_gone.rbegin() >= round.node_count)
        return "a rank beyond its round";
    if (!round.gone.empty() && round.gone.rbegin()->first >= round.node_count) return "a rank beyond its round";
    if (round.failures.empty() != round.failures.kept().empty()) return "failures that are not there";
    if (round.ended && round.reason == native::RoundEndReason::worker_failed && round.failures.empty())
        return "a failure without a report";
    std::set<std::uint32_t> ranks;
    for (const auto& member : kept.members) {
        if (const auto why = impossible_in(member, job, round); !why.empty()) return why;
        if (sealed && member.round == round.number && !ranks.insert(member.group_rank).second)
            return "two nodes with one rank";
    }
    return {};
}

}  // namespace muster::rendezvous
