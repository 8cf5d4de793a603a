#include "worker_runtime/reducer/device_norm.h"

#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

namespace {

constexpr std::size_t sum_count = kernels::SquareSum::items_max;

}  // namespace

Result<void> DeviceNorm::prepare(const ExchangeTerms& terms) {
    queue_ = terms.device;
    timeout_ = terms.timeout;
    auto memory = terms.allocate((sum_count + 1) * sizeof(double));
    if (!memory) return with_context(memory.error(), "memory for the norm of gradients");
    memory_ = std::move(*memory);
    return {};
}

Result<void> DeviceNorm::begin() {
    return queue_->fill_zero(memory_.data(), memory_.size_bytes());
}

Result<void> DeviceNorm::add(const Buffer& part) {
    return kernels::launch(*queue_, kernels::SquareSum{.data = part.data,
                                                       .count = part.count,
                                                       .sums = reinterpret_cast<double*>(memory_.data()),
                                                       .type = part.type});
}

Result<double> DeviceNorm::total() {
    auto* const all = reinterpret_cast<double*>(memory_.data());
    double total = 0;
    auto done = kernels::launch(*queue_, kernels::Total{.from = all, .count = sum_count, .to = all + sum_count});
    // A copy to the host's memory would wait without a deadline.
    if (done) done = queue_->finish(timeout_);
    if (done) done = queue_->copy(&total, all + sum_count, sizeof total);
    if (done) done = queue_->finish(timeout_);
    if (!done) return done.error();
    return total;
}

Result<void> DeviceNorm::scale(const Buffer& part, double factor) {
    switch (part.type) {
        case DataType::f64:
            return kernels::launch(
                *queue_,
                kernels::ScaleDoubles{.data = static_cast<double*>(part.data), .count = part.count, .factor = factor});
        case DataType::f32:
            return kernels::launch(*queue_, kernels::ScaleFloats{.data = static_cast<float*>(part.data),
                                                                 .count = part.count,
                                                                 .factor = static_cast<float>(factor)});
        default:
            return kernels::launch(*queue_, kernels::ScaleHalves{.data = static_cast<std::uint16_t*>(part.data),
                                                                 .count = part.count,
                                                                 .factor = static_cast<float>(factor),
                                                                 .type = part.type});
    }
}

Result<void> DeviceNorm::finish() {
    return queue_->finish(timeout_);
}

}  // namespace muster::runtime
