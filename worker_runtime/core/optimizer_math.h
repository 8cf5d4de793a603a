// One update of adjacent elements by an optimizer's rule.
#pragma once

#include <cstdint>
#include <span>

#include "muster/sharded_optimizer.h"
#include "worker_runtime/core/optimizer_elements.h"

namespace muster::runtime {

/// How many moments the rule keeps for each element: 0, 1 or 2.
int moment_count(const OptimizerRule& rule);

/// invalid_argument, naming the setting that makes no sense.
Result<void> check(const OptimizerRule& rule);

/// What the update number `update` (from 1) needs of the rule.
SgdNumbers numbers_of(const Sgd& rule, std::uint64_t update);
AdamNumbers numbers_of(const Adam& rule, std::uint64_t update);
AdamNumbers numbers_of(const AdamW& rule, std::uint64_t update);

/// `values` after the update number `update` (from 1) with `gradient`. `first` and `second` are as many elements, or
/// empty where the rule keeps none.
void update(const OptimizerRule& rule, std::uint64_t update, std::span<const float> gradient, std::span<float> values,
            std::span<float> first, std::span<float> second);

}  // namespace muster::runtime
