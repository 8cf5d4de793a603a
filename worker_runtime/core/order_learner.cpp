#include "worker_runtime/core/order_learner.h"

#include <algorithm>

namespace muster::runtime {

namespace {

std::size_t bytes_of(const BucketPlan& plan, std::int32_t parameter) {
    const auto& place = plan.places[static_cast<std::size_t>(parameter)];
    return place.count * size_of(plan.buckets[static_cast<std::size_t>(place.bucket)].type);
}

bool in_plan_order(const BucketPlan& plan, std::span<const std::int32_t> order) {
    std::size_t at = 0;
    for (const auto& bucket : plan.buckets) {
        for (const auto parameter : bucket.parameters) {
            if (at == order.size()) return true;
            if (order[at++] != parameter) return false;
        }
    }
    return true;
}

}  // namespace

double lateness(const BucketPlan& plan, std::span<const std::int32_t> order) {
    std::vector<std::int32_t> pending(plan.buckets.size());
    for (std::size_t b = 0; b < pending.size(); ++b) {
        pending[b] = static_cast<std::int32_t>(plan.buckets[b].parameters.size());
    }
    double total = 0;
    for (std::size_t b = 0; b < plan.regular_count; ++b) {
        for (const auto parameter : plan.buckets[b].parameters) total += static_cast<double>(bytes_of(plan, parameter));
    }
    if (total == 0) return 0;
    double ready = 0;
    double sum = 0;
    double waiting = total;
    std::size_t next = 0;
    const auto launch = [&] {
        double bytes = 0;
        for (const auto parameter : plan.buckets[next].parameters)
            bytes += static_cast<double>(bytes_of(plan, parameter));
        sum += bytes * ready;
        waiting -= bytes;
        ++next;
    };
    for (const auto parameter : order) {
        const auto bucket = static_cast<std::size_t>(plan.places[static_cast<std::size_t>(parameter)].bucket);
        if (bucket < plan.regular_count) ready += static_cast<double>(bytes_of(plan, parameter));
        --pending[bucket];
        while (next < plan.regular_count && pending[next] == 0) launch();
    }
    return (sum + waiting * total) / (total * total);
}

std::vector<std::int32_t> completed_order(const BucketPlan& plan, std::span<const std::int32_t> marked) {
    std::vector<std::int32_t> order(marked.begin(), marked.end());
    std::vector<bool> seen(plan.places.size());
    for (const auto parameter : marked) seen[static_cast<std::size_t>(parameter)] = true;
    for (const auto& bucket : plan.buckets) {
        for (const auto parameter : bucket.parameters) {
            if (!seen[static_cast<std::size_t>(parameter)]) order.push_back(parameter);
        }
    }
    return order;
}

ParameterOrder with_rare_last(std::span<const std::int32_t> order, const std::vector<bool>& rare) {
    ParameterOrder result{.parameters = {order.begin(), order.end()}, .rare_count = 0};
    const auto border =
        std::stable_partition(result.parameters.begin(), result.parameters.end(),
                              [&](std::int32_t parameter) { return !rare[static_cast<std::size_t>(parameter)]; });
    result.rare_count = static_cast<std::size_t>(result.parameters.end() - border);
    return result;
}

BucketPlan OrderLearner::plan_for(const std::vector<std::int32_t>& order, std::size_t rare_count) const {
    return plan_buckets(parameters_, {.parameters = order, .rare_count = rare_count}, caps_);
}

bool OrderLearner::ask(std::vector<std::int32_t> order) {
    order_ = std::move(order);
    first_ = false;
    agreed_count_ = 0;
    candidate_plan_.reset();
    return true;
}

bool OrderLearner::observe(const BucketPlan& plan, std::span<const std::int32_t> marked) {
    if (marked.empty()) return false;
    if (in_plan_order(plan, marked)) {
        first_ = false;
        candidate_plan_.reset();
        return false;
    }
    // Rare parameters stay so: whether they are is not a question of order.
    std::vector<bool> rare(plan.places.size());
    for (std::size_t b = plan.regular_count; b < plan.buckets.size(); ++b) {
        for (const auto parameter : plan.buckets[b].parameters) rare[static_cast<std::size_t>(parameter)] = true;
    }
    auto order = with_rare_last(completed_order(plan, marked), rare);
    if (first_) return ask(std::move(order.parameters));

    const double now = lateness(plan, marked);
    if (candidate_plan_ && now - lateness(*candidate_plan_, marked) >= drift_min) {
        if (++agreed_count_ < patience_) return false;
        patience_ = std::min(2 * patience_, patience_max);
        return ask(std::move(candidate_));
    }
    candidate_plan_ = plan_for(order.parameters, order.rare_count);
    candidate_ = std::move(order.parameters);
    agreed_count_ = 0;
    return false;
}

/// first, patience, agreed, rare parameters of the candidate (-1: there is none), the order, the candidate.
std::vector<std::int64_t> OrderLearner::state() const {
    std::int64_t rare = -1;
    if (candidate_plan_) {
        rare = 0;
        for (std::size_t b = candidate_plan_->regular_count; b < candidate_plan_->buckets.size(); ++b)
            rare += static_cast<std::int64_t>(candidate_plan_->buckets[b].parameters.size());
    }
    std::vector<std::int64_t> numbers = {first_ ? 1 : 0, patience_, agreed_count_, rare};
    numbers.insert(numbers.end(), order_.begin(), order_.end());
    if (candidate_plan_) numbers.insert(numbers.end(), candidate_.begin(), candidate_.end());
    return numbers;
}

bool OrderLearner::restore(std::span<const std::int64_t> state) {
    const auto count = parameters_.size();
    const bool has_candidate = state.size() == 4 + 2 * count && state[3] >= 0;
    if (!has_candidate && state.size() != 4 + count) return false;
    const auto patience = state[1], agreed = state[2], rare = state[3];
    if (patience < patience_first || patience > patience_max || agreed < 0 || agreed >= patience) return false;
    auto order = order_of(state.subspan(4, count), 0);
    if (!order) return false;
    candidate_plan_.reset();
    candidate_.clear();
    if (has_candidate) {
        auto candidate = order_of(state.subspan(4 + count), rare);
        if (!candidate) return false;
        candidate_plan_ = plan_buckets(parameters_, *candidate, caps_);
        candidate_ = std::move(candidate->parameters);
    }
    order_ = std::move(order->parameters);
    first_ = state[0] != 0;
    patience_ = static_cast<int>(patience);
    agreed_count_ = static_cast<int>(agreed);
    return true;
}

}  // namespace muster::runtime
