// Exchanges gradients without compression.
#pragma once

#include "muster/bucket_exchange.h"

namespace muster::runtime {

/// Gives every rank the average of the whole bucket.
class ExactExchange final : public BucketExchange {
  public:
    [[nodiscard]] std::string name() const override { return "same"; }
    Result<void> prepare(const ExchangeTerms&, std::span<const GradientBucket>) override { return {}; }
    [[nodiscard]] int collective_count(const GradientBucket&) const override { return 1; }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override {
        if (stage > 0) return std::optional<Operation>();
        return std::optional(all_reduce_weighted(bucket.gradients, bucket.samples));
    }
};

/// Gives every rank the average of its piece of the bucket. Afterwards the rest of the bucket is meaningless.
class PieceExchange final : public BucketExchange {
  public:
    [[nodiscard]] std::string name() const override { return "own piece"; }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket>) override {
        rank_ = static_cast<std::size_t>(terms.rank);
        world_ = static_cast<std::size_t>(terms.world);
        return {};
    }
    [[nodiscard]] int collective_count(const GradientBucket&) const override { return 1; }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override {
        if (stage > 0) return std::optional<Operation>();
        Buffer piece = bucket.gradients;
        piece.count /= world_;
        piece.data = static_cast<std::byte*>(piece.data) + rank_ * piece.size_bytes();
        Operation operation = reduce_scatter(bucket.gradients, piece, ReduceOp::avg);
        operation.weight = static_cast<double>(bucket.samples);
        operation.weighted = true;
        return std::optional(operation);
    }

  private:
    std::size_t rank_ = 0;
    std::size_t world_ = 1;
};

}  // namespace muster::runtime
