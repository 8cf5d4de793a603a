#include "rendezvous/rounds/terms.h"

#include <algorithm>
#include <string_view>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::rendezvous {

namespace {

using native::JobTerms;

/// Shorter leases cannot be kept on a busy machine; longer waits are a mistake in the unit.
constexpr std::uint32_t lease_ms_min = 50;
constexpr std::uint32_t duration_ms_max = 7 * 24 * 3600 * 1000u;

/// A count of milliseconds must hold it.
constexpr std::uint32_t restarts_window_ms_max = 30u * 24 * 3600 * 1000;

/// "60 s", "2.05 s": exact, so that two terms that differ never look alike.
std::string seconds(std::uint32_t milliseconds) {
    auto text = cat(milliseconds / 1000);
    if (auto rest = milliseconds % 1000; rest != 0) {
        auto decimals = cat(1000 + rest).substr(1);
        text += cat('.', decimals.substr(0, decimals.find_last_not_of('0') + 1));
    }
    return text + " s";
}

/// In the largest unit that gives a whole number.
std::string window(std::uint32_t milliseconds) {
    struct Unit {
        std::uint32_t milliseconds;
        char letter;
    };
    for (const auto unit : {Unit{86'400'000, 'd'}, Unit{3'600'000, 'h'}, Unit{60'000, 'm'}, Unit{1000, 's'}})
        if (milliseconds % unit.milliseconds == 0) return cat(milliseconds / unit.milliseconds, unit.letter);
    return seconds(milliseconds);
}

std::string node_failures(const JobTerms& terms) {
    return terms.node_failures_max == 0 ? "0" : cat(terms.node_failures_max, '/', terms.node_failures_of);
}

struct Term {
    std::string_view name;
    std::string_view option;
    std::string (*value)(const JobTerms&);  ///< as a person writes it
};

constexpr Term all_terms[] = {
    {"back end", "--rdzv-backend", [](const JobTerms& t) { return std::string(t.fixed_world ? "static" : "c10d"); }},
    {"minimum of nodes", "--nnodes", [](const JobTerms& t) { return cat(t.nodes_min); }},
    {"maximum of nodes", "--nnodes", [](const JobTerms& t) { return cat(t.nodes_max); }},
    {"number of spares", "--spares", [](const JobTerms& t) { return cat(t.spares); }},
    {"restart budget", "--max-restarts", restart_budget},
    {"last call", "--rdzv-conf last_call_timeout", [](const JobTerms& t) { return seconds(t.last_call_ms); }},
    {"lease", "--lease", [](const JobTerms& t) { return seconds(t.lease_ms); }},
    {"limit of restarts without a newer checkpoint", "--max-stalled-restarts",
     [](const JobTerms& t) { return cat(t.stalled_restarts_max); }},
    {"lost time-out", "--rdzv-lost-timeout", [](const JobTerms& t) { return seconds(t.lost_timeout_ms); }},
    {"limit of one node's failures", "--node-failures", node_failures},
    {"restart after an early failure", "--restart-early-failures",
     [](const JobTerms& t) { return std::string(t.restart_early_failures ? "on" : "off"); }},
    {"door of the workers' store", "--store-door and --wire-security",
     [](const JobTerms& t) { return std::string(t.store_door ? "on" : "off"); }},
};

}  // namespace

std::string restart_budget(const JobTerms& terms) {
    return terms.restarts_window_ms == 0 ? cat(terms.restarts_max)
                                         : cat(terms.restarts_max, '/', window(terms.restarts_window_ms));
}

std::string wrong_with(const native::Join& join, std::uint32_t nodes_max) {
    const auto& terms = join.terms;
    if (terms.nodes_min < 1 || terms.nodes_min > terms.nodes_max)
        return cat("--nnodes ", terms.nodes_min, ":", terms.nodes_max, " must have 1 <= MIN <= MAX");
    if (terms.nodes_max > nodes_max || terms.spares > nodes_max)
        return cat("--nnodes ", terms.nodes_max, " with ", terms.spares, " spares exceeds this daemon's maximum of ",
                   nodes_max);
    if (join.slots < 1 || join.slots > native::slots_max)
        return cat("--nproc-per-node ", join.slots, " must be 1 to ", native::slots_max);
    if (terms.lease_ms < lease_ms_min || terms.lease_ms > duration_ms_max)
        return cat("a lease of ", seconds(terms.lease_ms), " must be ", seconds(lease_ms_min), " to a week");
    if (terms.lost_timeout_ms < terms.lease_ms || terms.lost_timeout_ms > duration_ms_max)
        return cat("--rdzv-lost-timeout of ", seconds(terms.lost_timeout_ms), " must be at least the lease, ",
                   seconds(terms.lease_ms), ", and at most a week");
    if (terms.last_call_ms > duration_ms_max)
        return cat("a last call of ", seconds(terms.last_call_ms), " is longer than a week");
    if (terms.restarts_window_ms > restarts_window_ms_max)
        return cat("--max-restarts ", restart_budget(terms), ": the window is at most ",
                   window(restarts_window_ms_max));
    if (terms.node_failures_max > terms.node_failures_of || terms.node_failures_of > node_failures_of_max)
        return cat("--node-failures ", node_failures(terms), " must be M/N with 0 < M <= N <= ", node_failures_of_max);
    if (join.last_round < no_round || join.last_round > round_max) return "the number of the last round is invalid";
    if (join.node_rank < -1) return cat("--node-rank ", join.node_rank, " must not be negative");
    if (terms.fixed_world && join.node_rank >= static_cast<std::int64_t>(terms.nodes_max))
        return cat("--node-rank ", join.node_rank, " must be below --nnodes ", terms.nodes_max);
    return {};
}

std::string too_few_connections(const std::string& job, const native::Join& join, const ServerConfig& config) {
    const auto& terms = join.terms;
    // At the port of a static job's daemon is also the store of its workers: at least one on each node that comes
    // later.
    const auto nodes = std::size_t{terms.fixed_world ? terms.nodes_max : terms.nodes_min};
    const auto needed = terms.fixed_world ? 2 * nodes - 1 + join.slots : nodes;
    if (needed <= config.connections_max) return {};
    const auto files = needed + config.other_descriptors;
    return cat("job '", job, "' needs ", terms.fixed_world ? "at least " : "", needed, " connections (", nodes,
               " nodes", terms.fixed_world ? " and their workers, whose store is at its port" : "",
               "), but the daemon there may have ", config.connections_max,
               " by its limits of open files (RLIMIT_NOFILE, hard) and memory; on its host run `ulimit -n ", files,
               "` as root in the shell that starts it, or write LimitNOFILE=", files,
               " into its unit; where memory is the smaller limit, give it more");
}

const Job* store_user(const std::string& job, bool is_back, const ServerConfig& config,
                      const std::vector<const Job*>& jobs) {
    if (config.embedded_for == job) return nullptr;
    const Job* user = nullptr;
    for (const auto* known : jobs) {
        if (known->id() != job) {
            if (known->terms().fixed_world && known->is_alive()) user = known;
        } else if (known->is_alive() || (is_back && known->ending())) {
            return nullptr;
        }
    }
    return user;
}

std::string store_in_use(const std::string& job) {
    // Does not name it: the key of one job is proved here, and those of the others are not.
    return cat("job '", job,
               "' has --rdzv-backend=static, and the daemon there has one store for the workers of such "
               "jobs, which another one uses; start job '",
               job, "' with --rdzv-backend=c10d, or with a --master-port of its own");
}

std::string wrong_with(const native::Resume& resume) {
    const auto& told = resume.as_assigned;
    const bool sound = resume.round >= 0 && resume.round <= round_max && told.round == resume.round &&
                       told.group_rank < told.group_world_size &&
                       told.group_world_size <= resume.as_joined.terms.nodes_max;
    return sound ? std::string{} : std::string("the round that the agent wants to resume is invalid");
}

std::string difference(const JobTerms& set, const std::string& set_by, const JobTerms& given,
                       const std::string& given_by) {
    if (set == given) return {};
    for (const auto& term : all_terms)
        if (const auto first = term.value(set), other = term.value(given); first != other)
            return cat("the ", term.name, " is ", first, " at ", set_by, " and ", other, " at ", given_by,
                       "; give the same ", term.option, " on every node");
    return {};
}

}  // namespace muster::rendezvous
