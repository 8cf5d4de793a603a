#include "worker_runtime/reducer/device_finite_check.h"

#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

Result<void> DeviceFiniteCheck::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    queue_ = terms.device;
    timeout_ = terms.timeout;
    const std::size_t count = terms.parameters.size();
    parameter_count_ = static_cast<std::uint32_t>(count);
    if (!memory_.data()) {
        auto memory = terms.allocate(count * (sizeof *begins_ + sizeof *parameters_ + sizeof *found_));
        if (!memory) return with_context(memory.error(), "memory for the check of gradients");
        memory_ = std::move(*memory);
        begins_ = reinterpret_cast<std::uint64_t*>(memory_.data());
        parameters_ = reinterpret_cast<std::int32_t*>(begins_ + count);
        found_ = reinterpret_cast<std::uint32_t*>(parameters_ + count);
    }
    tables_ = {};
    for (const auto& bucket : buckets) {
        tables_.first_slice.push_back(tables_.begins.size());
        for (const auto& slice : bucket.slices) {
            tables_.begins.push_back(slice.offset);
            tables_.parameters.push_back(slice.parameter);
        }
    }
    auto put = queue_->copy(begins_, tables_.begins.data(), tables_.begins.size() * sizeof *begins_);
    if (put)
        put = queue_->copy(parameters_, tables_.parameters.data(), tables_.parameters.size() * sizeof *parameters_);
    return put ? queue_->finish(timeout_) : put;
}

Result<void> DeviceFiniteCheck::begin_step() {
    return queue_->fill_zero(found_, parameter_count_ * sizeof *found_);
}

Result<void> DeviceFiniteCheck::look_at(const GradientBucket& bucket) {
    const std::size_t first = tables_.first_slice[bucket.index];
    return kernels::launch(*queue_,
                           kernels::FindNonFinite{.data = bucket.gradients.data,
                                                  .count = bucket.gradients.count,
                                                  .begins = begins_ + first,
                                                  .parameters = parameters_ + first,
                                                  .found = found_,
                                                  .slice_count = static_cast<std::uint32_t>(bucket.slices.size()),
                                                  .parameter_count = parameter_count_,
                                                  .type = bucket.gradients.type});
}

Result<std::vector<std::int32_t>> DeviceFiniteCheck::found() {
    std::vector<std::uint32_t> flags(parameter_count_);
    auto brought = queue_->copy(flags.data(), found_, flags.size() * sizeof flags[0]);
    if (brought) brought = queue_->finish(timeout_);
    if (!brought) return brought.error();
    std::vector<std::int32_t> parameters;
    for (std::size_t i = 0; i < flags.size(); ++i) {
        if (flags[i] != 0) parameters.push_back(static_cast<std::int32_t>(i));
    }
    return parameters;
}

}  // namespace muster::runtime
