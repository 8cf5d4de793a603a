// Sends gradients of f32 as 8-bit integers, with error feedback on both legs.
//
//   1. Each rank adds the residual of the previous step, splits the bucket into a piece for each rank, and sends every
//      piece as codes and scales (all_to_all).
//   2. Each rank sums the received pieces, in f32 and in rank order, weighted by samples; adds the residual of its
//      average in the previous step; and sends the average as codes and scales to all ranks (all_gather).
//   3. Every rank decodes the same bytes, so all have the same gradients.
//
// A rank sends (world - 1) / world of a quarter of the bucket, twice: a quarter of the bytes of an all-reduce of f32.
#pragma once

#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/wires/residuals.h"

namespace muster::runtime {

class Int8Exchange final : public BucketExchange {
  public:
    [[nodiscard]] std::string name() const override { return "int8"; }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        return bucket.gradients.type == DataType::f32 ? 2 : 1;
    }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;
    void keep(std::vector<std::byte>& to) const override;
    bool restore(std::span<const std::byte> from) override;

  private:
    /// Buffers of a bucket in the wire format: per piece its samples, a scale for each block, and the codes.
    struct Staging {
        std::size_t piece_elements = 0;  ///< a multiple of int8_block; the last pieces may extend beyond the bucket
        std::size_t piece_bytes = 0;
        Buffer outgoing{};  ///< a piece for each rank; in the second leg the averages of all pieces
        Buffer incoming{};
        std::vector<float> lost_average;  ///< residual of the average of this rank's piece
    };

    void encode(const GradientBucket& bucket, Staging& staging);
    void average(Staging& staging);
    void decode(const GradientBucket& bucket, const Staging& staging) const;

    std::size_t rank_ = 0;
    std::size_t world_ = 1;
    Memory memory_;
    Residuals residuals_;
    std::vector<Staging> staging_;
};

}  // namespace muster::runtime
