#include "worker_runtime/wires/device_residuals.h"

namespace muster::runtime {

Result<void> keep_device(DeviceQueue& queue, Duration timeout, const Buffer& memory, std::vector<std::byte>& to) {
    const std::size_t at = to.size();
    to.resize(at + memory.size_bytes());
    if (memory.count == 0) return {};
    auto done = queue.copy(to.data() + at, memory.data, memory.size_bytes());
    return done ? queue.finish(timeout) : done;
}

Result<bool> restore_device(DeviceQueue& queue, Duration timeout, const Buffer& memory,
                            std::span<const std::byte>& from) {
    if (from.size() < memory.size_bytes()) return false;
    if (memory.count > 0) {
        MUSTER_TRY(queue.copy(memory.data, from.data(), memory.size_bytes()));
        MUSTER_TRY(queue.finish(timeout));
    }
    from = from.subspan(memory.size_bytes());
    return true;
}

Result<void> DeviceResiduals::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets,
                                      StagingPlan& plan) {
    queue_ = terms.device;
    timeout_ = terms.timeout;
    for (std::size_t b = 0; b < places_.size(); ++b) {
        auto& values = on_host_.all()[b];
        values.resize(places_[b].count);
        if (values.empty()) continue;
        MUSTER_TRY(queue_->copy(values.data(), places_[b].data, places_[b].size_bytes()));
    }
    MUSTER_TRY(queue_->finish(timeout_));
    on_host_.prepare(terms.parameters, buckets);
    places_.assign(buckets.size(), {});
    for (const auto& bucket : buckets) {
        if (bucket.gradients.type != DataType::f32) continue;
        plan.add(places_[bucket.index], {.data = nullptr, .count = bucket.gradients.count, .type = DataType::f32});
    }
    return {};
}

Result<void> DeviceResiduals::take_place() {
    for (std::size_t b = 0; b < places_.size(); ++b) {
        auto& values = on_host_.all()[b];
        if (values.empty()) continue;
        MUSTER_TRY(queue_->copy(places_[b].data, values.data(), places_[b].size_bytes()));
        MUSTER_TRY(queue_->finish(timeout_));
        values = {};
    }
    return {};
}

Result<void> DeviceResiduals::keep(std::vector<std::byte>& to) const {
    for (const auto& place : places_) {
        MUSTER_TRY(keep_device(*queue_, timeout_, place, to));
    }
    return {};
}

Result<bool> DeviceResiduals::restore(std::span<const std::byte>& from) {
    for (const auto& place : places_) {
        const auto fits = restore_device(*queue_, timeout_, place, from);
        if (!fits || !*fits) return fits;
    }
    return true;
}

}  // namespace muster::runtime
