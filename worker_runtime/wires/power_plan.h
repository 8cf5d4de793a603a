// The plan of PowerSGD for a bucket, on host or GPU: which gradients are compressed, and where everything is.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "muster/bucket_exchange.h"

namespace muster::runtime {

/// A gradient as a matrix; its P and Q lie at offsets among those of the bucket.
struct PowerMatrix {
    BucketSlice slice;
    std::size_t rows = 0;
    std::size_t row_elements = 0;
    std::size_t p_offset = 0;
    std::size_t q_offset = 0;
};

/// Of a bucket. The first leg carries all P and then the others, the second one all Q.
struct PowerPlan {
    std::vector<PowerMatrix> matrices;
    std::vector<BucketSlice> others;  ///< as they are
    std::size_t p_elements = 0;
    std::size_t q_elements = 0;
    std::size_t other_elements = 0;
};

struct PowerSettings {
    std::size_t columns = 1;       ///< of P and Q: r
    std::uint64_t start_step = 0;  ///< steps before travel as they are, while gradients change fast

    [[nodiscard]] std::string name() const;
    [[nodiscard]] PowerPlan plan(std::span<const Parameter> parameters, const GradientBucket& bucket) const;
    [[nodiscard]] bool compresses(const GradientBucket& bucket, const PowerPlan& plan) const {
        return bucket.step >= start_step && !plan.matrices.empty();
    }
};

}  // namespace muster::runtime
