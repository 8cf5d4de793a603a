// PowerSGD: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression", NeurIPS 2019, algorithm 1.
//
// A gradient M of n x m (the first dimension by the rest) is approximated by P Q', with r columns each, by one step of
// the power method from the Q of the step before:
//
//   1. M += what was lost before.  P = M Q, averaged over ranks
//   2. P's columns are made orthonormal.  Q = M' P, averaged
//   3. M becomes P Q'; what differs is lost for now
//
// r (n + m) numbers travel instead of n m. Parameters that this would not make at least half as large (all vectors)
// travel as they are, beside the P of the same bucket. All sums run in f32, but for those of step 2's lengths and
// angles. Only gradients of f32 are compressed.
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
        Buffer first{};   ///< all P, then the others
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
    std::vector<std::vector<float>> q_;  ///< of each parameter, column by column; empty where it is not compressed
};

}  // namespace muster::runtime
