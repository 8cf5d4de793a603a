// When is it worth making the buckets anew, in the order in which gradients really come?
//
// The measure is lateness(plan, order): the mean, over all gradient bytes, of the share of the pass that has gone by
// when their bucket can be launched (0: at once, 1: at the end), with bytes made ready as the clock. A plan made for
// the observed order is the best one can have; how much later the present plan is, is the drift.
//
//   - After the first pass with an order of its own: any drift asks for new buckets.
//   - Later the order of a pass is a candidate. Buckets made for it must be better than the present ones by `drift_min`
//     in the `patience` passes that follow, else the order of the pass where they were not is the next candidate. So a
//     model whose order is chance asks for nothing, and noise between neighbours neither.
//   - Each request doubles the patience, so that an order that swings to and fro settles.
//
// Rank 0 learns; the others are told (house rule: one decides, all agree).
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
