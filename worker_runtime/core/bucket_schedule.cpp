#include "worker_runtime/core/bucket_schedule.h"

#include "rendezvous/base/check.h"

namespace muster::runtime {

BucketSchedule::BucketSchedule(const BucketPlan& plan)
    : bucket_of_(plan.places.size()),
      sizes_(plan.buckets.size()),
      regular_count_(plan.regular_count),
      counters_(plan.buckets.size()),
      marked_in_(plan.places.size()),
      observed_(plan.places.size()) {
    for (std::size_t i = 0; i < plan.places.size(); ++i) bucket_of_[i] = plan.places[i].bucket;
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        sizes_[b] = static_cast<std::int32_t>(plan.buckets[b].parameters.size());
    }
}

void BucketSchedule::begin_pass() {
    if (++pass_ == 0) {
        // Marks of 2^32 passes ago must not look fresh.
        for (auto& mark : marked_in_) mark.store(0, std::memory_order_relaxed);
        pass_ = 1;
    }
    for (std::size_t b = 0; b < sizes_.size(); ++b) {
        counters_[b].pending.store(sizes_[b], std::memory_order_relaxed);
    }
    position_.store(0, std::memory_order_relaxed);
    observed_count_ = 0;
    next_ = 0;
}

Marked BucketSchedule::mark_ready(std::int32_t parameter) {
    const auto index = static_cast<std::size_t>(parameter);
    MUSTER_CHECK(parameter >= 0 && index < bucket_of_.size(), parameter, bucket_of_.size());
    if (marked_in_[index].exchange(pass_, std::memory_order_relaxed) == pass_) return Marked::twice;
    observed_[position_.fetch_add(1, std::memory_order_relaxed)] = parameter;
    auto& pending = counters_[static_cast<std::size_t>(bucket_of_[index])].pending;
    return pending.fetch_sub(1, std::memory_order_acq_rel) == 1 ? Marked::bucket_complete : Marked::noted;
}

BucketRange BucketSchedule::take_launchable() {
    const std::size_t begin = next_;
    while (next_ + 1 < regular_count_ && counters_[next_].pending.load(std::memory_order_acquire) == 0) ++next_;
    return {begin, next_};
}

BucketRange BucketSchedule::end_pass() {
    observed_count_ = position_.load(std::memory_order_acquire);
    const std::size_t begin = next_;
    next_ = regular_count_;
    return {begin, next_};
}

bool BucketSchedule::is_ready(std::int32_t parameter) const {
    return marked_in_[static_cast<std::size_t>(parameter)].load(std::memory_order_relaxed) == pass_;
}

}  // namespace muster::runtime
