#include "launcher/host/absent_ranks.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

std::string here(std::uint32_t workers) {
    return workers == 1 ? "this node has only local rank 0" : cat("this node has local ranks 0 to ", workers - 1);
}

}  // namespace

std::vector<std::string> absent_rank_hints(const LaunchConfig& config) {
    const auto workers = config.workers_per_node;
    std::vector<std::string> hints;
    const auto look_at = [&](const char* option, const StreamChoice& choice) {
        const auto& masks = choice.by_local_rank;
        const bool in_vain =
            std::all_of(masks.begin(), masks.end(), [&](const auto& one) { return one.first >= workers; });
        if (!masks.empty() && in_vain) hints.push_back(cat(option, " has no effect: ", here(workers)));
    };
    look_at("--redirects", config.redirects);
    look_at("--tee", config.tee);
    const auto& shown = config.local_ranks_filter;
    const bool in_vain = std::all_of(shown.begin(), shown.end(), [&](auto rank) { return rank >= workers; });
    if (!shown.empty() && in_vain)
        hints.push_back(cat("--local-ranks-filter hides the output of all workers here: ", here(workers)));
    return hints;
}

}  // namespace muster::launcher
