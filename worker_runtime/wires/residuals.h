// Compression errors, added to the next step's gradients (error feedback: Seide et al., Interspeech 2014; Karimireddy
// et al., ICML 2019). They have the layout of the buckets, and move with the parameters to new buckets.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "muster/bucket_exchange.h"

namespace muster::runtime {

/// Appends values for BucketExchange::keep().
inline void add_bytes(std::vector<std::byte>& to, std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Reads and removes the next values of `from`, for restore(). Returns false if there are too few.
inline bool take_bytes(std::span<const std::byte>& from, std::span<float> values) {
    const auto bytes = std::as_writable_bytes(values);
    if (from.size() < bytes.size()) return false;
    std::copy_n(from.begin(), bytes.size(), bytes.begin());
    from = from.subspan(bytes.size());
    return true;
}

class Residuals {
  public:
    /// Lays out memory for the buckets of f32, and keeps the values of their parameters; new values are 0.
    void prepare(std::span<const Parameter> parameters, std::span<const GradientBucket> buckets) {
        std::vector<std::vector<float>> known(parameters.size());
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const auto& [bucket, slice] = places_[i];
            if (slice.count == 0) continue;
            const auto begin = buckets_[bucket].begin() + static_cast<std::ptrdiff_t>(slice.offset);
            known[i].assign(begin, begin + static_cast<std::ptrdiff_t>(slice.count));
        }
        places_.assign(parameters.size(), {});
        buckets_.assign(buckets.size(), {});
        for (const auto& bucket : buckets) {
            if (bucket.gradients.type != DataType::f32) continue;
            auto& mine = buckets_[bucket.index];
            mine.assign(bucket.gradients.count, 0);
            for (const auto& slice : bucket.slices) {
                const auto parameter = static_cast<std::size_t>(slice.parameter);
                places_[parameter] = {bucket.index, slice};
                std::copy(known[parameter].begin(), known[parameter].end(),
                          mine.begin() + static_cast<std::ptrdiff_t>(slice.offset));
            }
        }
    }

    [[nodiscard]] std::span<std::vector<float>> all() { return buckets_; }
    [[nodiscard]] std::span<const std::vector<float>> all() const { return buckets_; }
    [[nodiscard]] std::span<float> of(const GradientBucket& bucket) { return buckets_[bucket.index]; }

  private:
    struct Place {
        std::size_t bucket = 0;
        BucketSlice slice{};
    };
    std::vector<Place> places_;
    std::vector<std::vector<float>> buckets_;
};

}  // namespace muster::runtime
