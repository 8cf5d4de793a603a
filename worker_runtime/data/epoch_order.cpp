#include "worker_runtime/data/epoch_order.h"

#include "worker_runtime/data/torch_permutation.h"

namespace muster::runtime {

EpochOrder::EpochOrder(const ElasticSamplerOptions& options, std::uint64_t epoch) : epoch_(epoch) {
    if (options.order == SampleOrder::torch) {
        places_ = torch_permutation(static_cast<std::uint32_t>(options.sample_count), options.seed + epoch);
    } else if (options.order == SampleOrder::computed) {
        places_ = IndexPermutation(options.sample_count, options.seed, epoch);
    }
}

std::uint64_t EpochOrder::at(std::uint64_t place) const {
    if (const auto* const permutation = std::get_if<IndexPermutation>(&places_)) return permutation->at(place);
    if (const auto* const array = std::get_if<std::vector<std::uint32_t>>(&places_)) return (*array)[place];
    return place;
}

}  // namespace muster::runtime
