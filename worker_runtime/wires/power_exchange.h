// PowerSGD: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression", NeurIPS 2019, algorithm 1.
//
// A gradient M of n x m (the first dimension by the product of the others) is approximated by P Q', each with r
// columns. Each step makes one iteration of the power method, from the previous step's Q:
//
//   1. M += residual.  P = M Q, averaged over ranks
//   2. The columns of P are made orthonormal.  Q = M' P, averaged
//   3. M becomes P Q'; the difference is the new residual
//
// r (n + m) numbers are sent instead of n m. Parameters that this would not shrink to half or less (all vectors, for
// example) are sent uncompressed, together with the P of the same bucket. Sums are in f32, except those for lengths and
// angles in step 2. Only gradients of f32 are compressed.
#pragma once

#include <vector>

#include "muster/bucket_exchange.h"
#include "worker_runtime/wires/power_plan.h"
#include "worker_runtime/wires/residuals.h"

namespace muster::runtime {

class PowerExchange final : public BucketExchange {
  public:
    explicit PowerExchange(const PowerSettings& settings) : settings_(settings) {}

    [[nodiscard]] std::string name() const override { return settings_.name(); }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) override;
    [[nodiscard]] int collective_count(const GradientBucket& bucket) const override {
        return compresses(bucket) ? 2 : 1;
    }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override;
    void keep(std::vector<std::byte>& to) const override;
    bool restore(std::span<const std::byte> from) override;

  private:
    struct Staging {
        PowerPlan plan;
        Buffer first{};   ///< all P, then the uncompressed gradients
        Buffer second{};  ///< all Q
    };

    [[nodiscard]] bool compresses(const GradientBucket& bucket) const {
        return settings_.compresses(bucket, staging_[bucket.index].plan);
    }
    void project(const GradientBucket& bucket, Staging& staging);
    void project_back(const GradientBucket& bucket, Staging& staging) const;
    void restore(const GradientBucket& bucket, Staging& staging);
    void keep_for_next(const PowerMatrix& matrix, const float* q);

    PowerSettings settings_;
    Memory memory_;
    Residuals residuals_;
    std::vector<Staging> staging_;
    std::vector<std::vector<float>> q_;  ///< Q of each parameter, by columns; empty if not compressed
};

}  // namespace muster::runtime
