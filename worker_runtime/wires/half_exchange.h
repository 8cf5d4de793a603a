// Gradients of f32 as f16 or bf16 on the wire.
#pragma once

#include <vector>

#include "muster/bucket_exchange.h"

namespace muster::runtime {

/// Each rank rounds its gradients once into staging memory of half the size, which is averaged there: the sums run in
/// f32 (see ReduceOp), and the average is rounded once. Buckets of other types travel as they are.
class HalfExchange final : public BucketExchange {
  public:
    /// f16 or bf16.
    explicit HalfExchange(DataType wire) : wire_(wire) {}

    [[nodiscard]] std::string name() const override { return std::string(muster::name(wire_)); }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket&) const override { return 1; }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;

  private:
    DataType wire_;
    Memory memory_;
    std::vector<Buffer> staging_;  ///< of each bucket of f32
};

}  // namespace muster::runtime
