#include "worker_runtime/reducer/gradient_arena.h"

#include <cstring>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/transport/device_queue.h"

namespace muster::runtime {

namespace {

/// Another order can need more buckets, and each may waste most of a page.
std::size_t with_slack(const BucketPlan& plan) {
    return plan.arena_bytes + (plan.buckets.size() + 16) * bucket_alignment_bytes;
}

}  // namespace

Result<void> GradientArena::hold(Communicator& communicator, const BucketPlan& plan) {
    device_ = communicator.device();
    timeout_ = communicator.timeout();
    // The caller's GPU work may still read the old gradients.
    if (device_ && memory_.data()) {
        if (auto settled = device_->settle(); !settled) return settled;
    }
    if (memory_.size_bytes() < plan.arena_bytes) {
        memory_ = Memory();
        auto memory = communicator.allocate(with_slack(plan));
        if (!memory)
            return with_context(memory.error(), cat("memory for ", plan.arena_bytes >> 20, " MiB of gradients"));
        memory_ = std::move(*memory);
    }
    used_bytes_ = plan.arena_bytes;
    gradients_.assign(plan.places.size(), Buffer{});
    slices_.assign(plan.buckets.size(), {});
    buckets_.clear();
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        const auto& bucket = plan.buckets[b];
        std::byte* const start = memory_.data() + bucket.start_bytes;
        for (const auto parameter : bucket.parameters) {
            const auto& place = plan.places[static_cast<std::size_t>(parameter)];
            slices_[b].push_back(
                {.parameter = parameter, .offset = place.offset_bytes / size_of(bucket.type), .count = place.count});
            gradients_[static_cast<std::size_t>(parameter)] = {
                .data = start + place.offset_bytes, .count = place.count, .type = bucket.type};
        }
        buckets_.push_back(
            {.index = b,
             .gradients = {.data = start, .count = bucket.size_bytes / size_of(bucket.type), .type = bucket.type},
             .slices = slices_[b]});
    }
    return clear();
}

Result<void> GradientArena::clear() {
    if (!device_) {
        std::memset(memory_.data(), 0, used_bytes_);
        return {};
    }
    auto filled = device_->fill_zero(memory_.data(), used_bytes_);
    return filled ? device_->finish(timeout_) : filled;
}

}  // namespace muster::runtime
