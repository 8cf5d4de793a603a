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

std::vector<std::int64_t> UsedParameters::state() const {
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 0; i < rare_.size(); ++i) {
        numbers.insert(numbers.end(), {rare_[i] ? 1 : 0, histories_[i].surprise_count, histories_[i].patience});
    }
    return numbers;
}

bool UsedParameters::restore(std::span<const std::int64_t> state) {
    if (state.size() != 3 * rare_.size()) return false;
    for (std::size_t i = 0; i < rare_.size(); ++i) {
        const auto patience = state[3 * i + 2];
        if (patience < 1 || patience > patience_max || state[3 * i + 1] < 0 || state[3 * i + 1] >= patience)
            return false;
        rare_[i] = state[3 * i] != 0;
        histories_[i] = {static_cast<std::uint16_t>(state[3 * i + 1]), static_cast<std::uint16_t>(patience)};
    }
    return true;
}

}  // namespace muster::runtime
