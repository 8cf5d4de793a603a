// Sends gradients of f32 as f16 or bf16.
#pragma once

#include <vector>

#include "muster/bucket_exchange.h"

namespace muster::runtime {

/// Each rank rounds its gradients once, into staging memory of half the size. The average is computed in f32 (see
/// ReduceOp) and rounded once. Buckets of other types are sent unchanged.
class HalfExchange final : public BucketExchange {
  public:
    /// `wire`: f16 or bf16.
    explicit HalfExchange(DataType wire) : wire_(wire) {}

    [[nodiscard]] std::string name() const override { return std::string(muster::name(wire_)); }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket&) const override { return 1; }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;

  private:
    DataType wire_;
    Memory memory_;
    std::vector<Buffer> staging_;  ///< indexed by bucket; only for buckets of f32
};

}  // namespace muster::runtime
