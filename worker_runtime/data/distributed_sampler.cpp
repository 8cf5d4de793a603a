#include "muster/distributed_sampler.h"

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/data/torch_permutation.h"

namespace muster {

Result<DistributedSampler> DistributedSampler::make(const DistributedSamplerOptions& options) {
    if (options.world < 1)
        return Error{Errc::invalid_argument, cat("a world of ", options.world, "; it must be at least 1")};
    if (options.rank < 0 || options.rank >= options.world) {
        return Error{Errc::invalid_argument, cat("rank ", options.rank, " is not in a world of ", options.world)};
    }
    if (options.shuffle == Shuffle::on && options.sample_count > torch_order_samples_max) {
        return Error{Errc::limit_exceeded,
                     cat(options.sample_count, " samples are too many for torch's order, which is an array of at most ",
                         torch_order_samples_max, "; take an elastic sampler with the computed order")};
    }
    if (options.sample_count > (std::uint64_t{1} << 63)) {
        return Error{Errc::limit_exceeded, cat(options.sample_count, " samples; at most 2^63")};
    }
    return DistributedSampler(options);
}

DistributedSampler::DistributedSampler(const DistributedSamplerOptions& options) : options_(options) {
    const auto world = static_cast<std::uint64_t>(options.world);
    const bool filled_up = options.last == LastSamples::repeat && options.sample_count % world != 0;
    size_ = options.sample_count / world + (filled_up ? 1 : 0);
}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
    epoch_ = epoch;
    epoch_set_ = true;
}

std::vector<std::uint64_t> DistributedSampler::indices() {
    const bool shuffles = options_.shuffle == Shuffle::on;
    if (shuffles && pass_begun_ && !epoch_set_ && !order_repeated_) {
        order_repeated_ = true;
        log(LogLevel::warning,
            "a second pass over the data begins in the order of the first one: call set_epoch() before each pass");
    }
    pass_begun_ = true;
    std::vector<std::uint32_t> order;
    if (shuffles) {
        order = runtime::torch_permutation(static_cast<std::uint32_t>(options_.sample_count), options_.seed + epoch_);
    }
    std::vector<std::uint64_t> own(size_);
    const auto world = static_cast<std::uint64_t>(options_.world);
    auto place = static_cast<std::uint64_t>(options_.rank);
    for (auto& index : own) {
        const auto inside = place % options_.sample_count;  // sample_count > 0, else there are no indices
        index = shuffles ? order[inside] : inside;
        place += world;
    }
    return own;
}

}  // namespace muster
