#include "worker_runtime/core/used_parameters.h"

#include <algorithm>

#include "rendezvous/base/check.h"

namespace muster::runtime {

UsedParameters::UsedParameters(std::size_t count) : rare_(count), histories_(count) {}

bool UsedParameters::observe(const std::vector<bool>& used) {
    MUSTER_CHECK(used.size() == rare_.size(), used.size(), rare_.size());
    bool changed = false;
    for (std::size_t i = 0; i < used.size(); ++i) {
        auto& history = histories_[i];
        if (used[i] != rare_[i]) {
            history.surprise_count = 0;
            continue;
        }
        if (++history.surprise_count < history.patience) continue;
        rare_[i] = !rare_[i];
        history.surprise_count = 0;
        history.patience = std::min<std::uint16_t>(static_cast<std::uint16_t>(2 * history.patience), patience_max);
        changed = true;
    }
    return changed;
}

}  // namespace muster::runtime
