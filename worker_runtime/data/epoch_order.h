// The order of one epoch's samples, for each order that an elastic sampler supports.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "muster/elastic_sampler.h"
#include "worker_runtime/data/index_permutation.h"

namespace muster::runtime {

class EpochOrder {
  public:
    EpochOrder(const ElasticSamplerOptions& options, std::uint64_t epoch);

    [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
    /// Returns the sample at `place`; place < sample_count.
    [[nodiscard]] std::uint64_t at(std::uint64_t place) const;

  private:
    struct Sequential {};

    std::uint64_t epoch_;
    std::variant<Sequential, std::vector<std::uint32_t>, IndexPermutation> places_;
};

}  // namespace muster::runtime
