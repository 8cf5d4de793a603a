#include "rendezvous/core/terms.h"

#include <string_view>

#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace {

using native::JobTerms;

/// Beyond this many workers a node's slots are a mistake, and sums of them could overflow.
constexpr std::uint32_t slots_max = 4096;
/// Shorter leases cannot be kept on a busy machine; longer waits are a mistake in the unit.
constexpr std::uint32_t lease_ms_min = 50;
constexpr std::uint32_t duration_ms_max = 7 * 24 * 3600 * 1000u;

/// So that the next number never overflows.
constexpr Round round_max = Round{1} << 62;

struct Term {
    std::string_view name;
    std::string_view option;
    std::uint64_t (*value)(const JobTerms&);
};

constexpr Term all_terms[] = {
    {"back end static", "--rdzv-backend", [](const JobTerms& t) -> std::uint64_t { return t.fixed_world; }},
    {"minimum of nodes", "--nnodes", [](const JobTerms& t) -> std::uint64_t { return t.nodes_min; }},
    {"maximum of nodes", "--nnodes", [](const JobTerms& t) -> std::uint64_t { return t.nodes_max; }},
    {"number of spares", "--spares", [](const JobTerms& t) -> std::uint64_t { return t.spares; }},
    {"restart budget", "--max-restarts", [](const JobTerms& t) -> std::uint64_t { return t.restarts_max; }},
    {"last call in ms", "--rdzv-conf last_call_timeout",
     [](const JobTerms& t) -> std::uint64_t { return t.last_call_ms; }},
    {"lease in ms", "--lease", [](const JobTerms& t) -> std::uint64_t { return t.lease_ms; }},
    {"lost time-out in ms", "--rdzv-lost-timeout",
     [](const JobTerms& t) -> std::uint64_t { return t.lost_timeout_ms; }},
};

}  // namespace

std::string wrong_with(const native::Join& join, std::uint32_t nodes_max) {
    const auto& terms = join.terms;
    if (terms.nodes_min < 1 || terms.nodes_min > terms.nodes_max)
        return cat("--nnodes ", terms.nodes_min, ":", terms.nodes_max, " must have 1 <= MIN <= MAX");
    if (terms.nodes_max > nodes_max || terms.spares > nodes_max)
        return cat("--nnodes ", terms.nodes_max, " with ", terms.spares, " spares is beyond this daemon's ", nodes_max);
    if (join.slots < 1 || join.slots > slots_max)
        return cat("--nproc-per-node ", join.slots, " must be 1 to ", slots_max);
    if (terms.lease_ms < lease_ms_min || terms.lease_ms > duration_ms_max)
        return cat("a lease of ", terms.lease_ms, " ms must be ", lease_ms_min, " ms to ", duration_ms_max, " ms");
    if (terms.lost_timeout_ms < terms.lease_ms || terms.lost_timeout_ms > duration_ms_max)
        return cat("--rdzv-lost-timeout of ", terms.lost_timeout_ms, " ms must be at least the lease, ", terms.lease_ms,
                   " ms, and at most a week");
    if (terms.last_call_ms > duration_ms_max) return cat("a last call of ", terms.last_call_ms, " ms is beyond a week");
    if (join.last_round < no_round || join.last_round > round_max)
        return "the last round is none that a daemon gives out";
    if (join.node_rank < -1) return cat("--node-rank ", join.node_rank, " must not be negative");
    if (terms.fixed_world && join.node_rank >= static_cast<std::int64_t>(terms.nodes_max))
        return cat("--node-rank ", join.node_rank, " must be below --nnodes ", terms.nodes_max);
    return {};
}

std::string wrong_with(const native::Resume& resume) {
    const auto& told = resume.as_assigned;
    const bool sound = resume.round >= 0 && resume.round <= round_max && told.round == resume.round &&
                       told.group_rank < told.group_world_size &&
                       told.group_world_size <= resume.as_joined.terms.nodes_max;
    return sound ? std::string{} : std::string("the round that the agent wants to go on with makes no sense");
}

std::string difference(const JobTerms& set, const std::string& set_by, const JobTerms& given,
                       const std::string& given_by) {
    for (const auto& term : all_terms)
        if (term.value(set) != term.value(given))
            return cat("the ", term.name, " is ", term.value(set), " at ", set_by, " and ", term.value(given), " at ",
                       given_by, "; give the same ", term.option, " on every node");
    return {};
}

}  // namespace muster::rendezvous
