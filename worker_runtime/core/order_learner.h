// Decides when to make new buckets in the order in which gradients really arrive.
//
// The measure is lateness(plan, order): the mean, over all gradient bytes, of the share of the pass that has elapsed
// when their bucket can be launched (0: at once, 1: at the end), with bytes made ready as the clock. A plan made for
// the observed order is optimal; the present plan's additional lateness is the drift.
//
//   - After the first pass with an order of its own: any drift requests new buckets.
//   - Later the order of a pass is a candidate. Its buckets must be better than the present ones by `drift_min` in the
//     `patience` passes that follow; else the order of the failing pass is the next candidate. A random order
//     therefore requests nothing, nor does noise between neighbours.
//   - Each request doubles the patience, so that an alternating order settles.
//
// Rank 0 learns and sends the result to the other ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker_runtime/core/bucket_plan.h"

namespace muster::runtime {

/// Parameters missing from `order` count as ready at its end. Rare buckets count for nothing.
double lateness(const BucketPlan& plan, std::span<const std::int32_t> order);

class OrderLearner {
  public:
    static constexpr double drift_min = 0.05;
    static constexpr int patience_first = 3;
    static constexpr int patience_max = 1024;

    OrderLearner(std::span<const Parameter> parameters, const BucketCaps& caps)
        : parameters_(parameters.begin(), parameters.end()),
          caps_(caps),
          order_(reverse_order(parameters.size()).parameters) {}

    /// One pass under `plan`, with the parameters it marked. True: make new buckets, by order().
    bool observe(const BucketPlan& plan, std::span<const std::int32_t> marked);

    /// The order that the last observe() which said yes asked for, at first the reverse one. Parameters it did not see
    /// come last.
    [[nodiscard]] const std::vector<std::int32_t>& order() const { return order_; }

    /// All that was learned; restore() goes on from there. False: it is of other parameters.
    [[nodiscard]] std::vector<std::int64_t> state() const;
    bool restore(std::span<const std::int64_t> state);

  private:
    [[nodiscard]] BucketPlan plan_for(const std::vector<std::int32_t>& order, std::size_t rare_count) const;
    bool ask(std::vector<std::int32_t> order);

    std::vector<Parameter> parameters_;
    BucketCaps caps_;
    std::vector<std::int32_t> order_;
    bool first_ = true;
    int patience_ = patience_first;
    int agreed_count_ = 0;
    std::vector<std::int32_t> candidate_;
    std::optional<BucketPlan> candidate_plan_;
};

/// `marked`, then all other parameters in the order in which `plan` has them.
std::vector<std::int32_t> completed_order(const BucketPlan& plan, std::span<const std::int32_t> marked);

/// `order` with the parameters for which `rare` is set moved to its end, each part in its old order.
ParameterOrder with_rare_last(std::span<const std::int32_t> order, const std::vector<bool>& rare);

}  // namespace muster::runtime
