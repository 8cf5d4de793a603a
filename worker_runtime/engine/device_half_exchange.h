// Gradients of f32 as f16 or bf16 on the wire, on GPUs: with the bits that HalfExchange has on the host. NCCL would sum
// such numbers in their own precision, so the sum is ours.
//
//   1. Each rank rounds its gradients once, and sends every rank its piece of them (all_to_all).
//   2. Each rank averages the pieces it got, in f32 and in rank order, and rounds once; all get all pieces
//      (all_gather), and widen them into the bucket.
//
// A rank sends (world - 1) / world of half the bucket twice, as an all-reduce of halves does.
#pragma once

#include <deque>
#include <string>

#include "muster/bucket_exchange.h"
#include "worker_runtime/cpu/device_queue.h"

namespace muster::runtime {

class DeviceHalfExchange final : public BucketExchange {
  public:
    /// f16 or bf16.
    explicit DeviceHalfExchange(DataType wire) : wire_(wire) {}

    [[nodiscard]] std::string name() const override { return std::string(muster::name(wire_)); }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        return bucket.gradients.type == DataType::f32 ? 2 : 1;
    }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;
    [[nodiscard]] bool chained() const override { return true; }

  private:
    /// Around the all_gather.
    struct Staging final : CollectiveSteps {
        const DeviceHalfExchange* exchange = nullptr;
        Buffer gradients{};
        Buffer outgoing{};  ///< a piece for each rank; then the averages of all pieces
        Buffer incoming{};

        [[nodiscard]] std::size_t piece_elements() const { return outgoing.count / exchange->world_; }
        [[nodiscard]] Buffer own_piece() const;
        Result<void> before(KernelQueue& stream) const override;
        Result<void> behind(KernelQueue& stream) const override;
    };

    DataType wire_;
    DeviceQueue* queue_ = nullptr;
    std::size_t rank_ = 0;
    std::size_t world_ = 1;
    const float* samples_ = nullptr;  ///< of all ranks, in the host's memory
    Memory memory_;
    Buffer weights_{};             ///< the same, in the GPU's
    std::deque<Staging> staging_;  ///< of each bucket; empty where it is not of f32
};

}  // namespace muster::runtime
