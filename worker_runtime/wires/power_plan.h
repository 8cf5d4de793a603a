// The plan of PowerSGD for a bucket, on host or GPU: which gradients are compressed, and the offsets of all parts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "muster/bucket_exchange.h"

namespace muster::runtime {

/// A gradient as a matrix, and the offsets of its P and Q among those of the bucket.
struct PowerMatrix {
    BucketSlice slice;
    std::size_t rows = 0;
    std::size_t row_elements = 0;
    std::size_t p_offset = 0;
    std::size_t q_offset = 0;
};

/// The plan of one bucket. The first leg sends all P, then the uncompressed gradients; the second one sends all Q.
struct PowerPlan {
    std::vector<PowerMatrix> matrices;
    std::vector<BucketSlice> others;  ///< sent uncompressed
    std::size_t p_elements = 0;
    std::size_t q_elements = 0;
    std::size_t other_elements = 0;
};

struct PowerSettings {
    std::size_t columns = 1;       ///< r, the number of columns of P and Q
    std::uint64_t start_step = 0;  ///< earlier steps are not compressed, because gradients change fast at first

    [[nodiscard]] std::string name() const;
    [[nodiscard]] PowerPlan plan(std::span<const Parameter> parameters, const GradientBucket& bucket) const;
    [[nodiscard]] bool compresses(const GradientBucket& bucket, const PowerPlan& plan) const {
        return bucket.step >= start_step && !plan.matrices.empty();
    }
};

}  // namespace muster::runtime
