// Gradients of f32 as f16 or bf16 on the wire, on GPUs, with the same bits as HalfExchange on the host. Each rank
// rounds its gradients once, and widens the average (device_average.h) into the bucket.
#pragma once

#include <deque>
#include <string>

#include "muster/bucket_exchange.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/device_average.h"

namespace muster::runtime {

class DeviceHalfExchange final : public BucketExchange {
  public:
    /// `wire`: f16 or bf16.
    explicit DeviceHalfExchange(DataType wire) : wire_(wire), average_(wire) {}

    [[nodiscard]] std::string name() const override { return std::string(muster::name(wire_)); }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        return bucket.gradients.type == DataType::f32 ? 2 : 1;
    }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;
    [[nodiscard]] bool chained() const override { return true; }

  private:
    /// The arithmetic before and after the second collective.
    struct Staging final : CollectiveSteps {
        const DeviceHalfExchange* exchange = nullptr;
        Buffer gradients{};
        DeviceAverage::Leg halves;

        Result<void> before(KernelQueue& stream) const override { return exchange->average_.make(halves, stream); }
        Result<void> behind(KernelQueue& stream) const override;
    };

    DataType wire_;
    DeviceQueue* queue_ = nullptr;
    Memory memory_;
    DeviceAverage average_;
    std::deque<Staging> staging_;  ///< indexed by bucket; empty if the bucket is not of f32
};

}  // namespace muster::runtime
