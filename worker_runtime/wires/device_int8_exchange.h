// Gradients of f32 as 8-bit integers on the wire, on GPUs: Int8Exchange with the same bits, wire format and checkpoint
// format.
#pragma once

#include <deque>
#include <string>

#include "muster/bucket_exchange.h"
#include "worker_runtime/kernels/int8_kernels.h"
#include "worker_runtime/transport/device_queue.h"
#include "worker_runtime/wires/device_residuals.h"

namespace muster::runtime {

class DeviceInt8Exchange final : public BucketExchange {
  public:
    [[nodiscard]] std::string name() const override { return "int8"; }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        return bucket.gradients.type == DataType::f32 ? 2 : 1;
    }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;
    [[nodiscard]] bool chained() const override { return true; }
    void keep(std::vector<std::byte>& to) const override;
    bool restore(std::span<const std::byte> from) override;

  private:
    /// The arithmetic before and after the all_gather.
    struct Staging final : CollectiveSteps {
        const DeviceInt8Exchange* exchange = nullptr;
        Buffer gradients{};
        std::size_t piece_elements = 0;  ///< a multiple of int8_block; the last pieces may extend beyond the bucket
        Buffer outgoing{};               ///< a piece for each rank; later the averages of all pieces
        Buffer incoming{};
        Buffer lost_average{};  ///< residual of the average of this rank's piece

        [[nodiscard]] kernels::Int8Pieces pieces(const Buffer& memory) const;
        Result<void> before(KernelQueue& stream) const override;
        Result<void> behind(KernelQueue& stream) const override;
    };

    DeviceQueue* queue_ = nullptr;
    Duration timeout_{};
    std::uint32_t rank_ = 0;
    std::uint32_t world_ = 1;
    Memory memory_;
    DeviceResiduals residuals_;
    std::deque<Staging> staging_;  ///< indexed by bucket; empty if the bucket is not of f32
};

}  // namespace muster::runtime
