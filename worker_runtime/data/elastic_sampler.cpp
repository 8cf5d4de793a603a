#include "muster/elastic_sampler.h"

#include <algorithm>

#include "muster/distributed_sampler.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/data/epoch_order.h"
#include "worker_runtime/data/mixing.h"
#include "worker_runtime/data/sampler_state.h"

namespace muster {

namespace {

Result<void> check_batch_size(const ElasticSamplerOptions& options, std::uint64_t batch_size) {
    if (batch_size == 0) return Error{Errc::invalid_argument, "the batch size is 0; it must be at least 1"};
    if (batch_size > ElasticSamplerOptions::batch_size_max) {
        return Error{Errc::limit_exceeded,
                     cat("a batch of ", batch_size, "; at most ", ElasticSamplerOptions::batch_size_max)};
    }
    if (options.tail == Tail::drop && batch_size > options.sample_count) {
        return Error{Errc::invalid_argument, cat("a batch of ", batch_size, " out of ", options.sample_count,
                                                 " samples would drop them all; take a smaller one, or another tail")};
    }
    return {};
}

Result<void> check_sample_count(const ElasticSamplerOptions& options) {
    if (options.sample_count == 0) return Error{Errc::invalid_argument, "the data set has no samples"};
    const auto most =
        options.order == SampleOrder::torch ? torch_order_samples_max : ElasticSamplerOptions::sample_count_max;
    if (options.sample_count <= most) return {};
    return Error{Errc::limit_exceeded,
                 cat(options.sample_count, " samples are too many for the order '", runtime::name_of(options.order),
                     "', which has at most ", most, most == torch_order_samples_max ? "; take 'computed'" : "")};
}

Error another(std::string_view noun, const std::string& theirs, const std::string& ours) {
    return {Errc::refused, cat("the sampler's state is of ", noun, " ", theirs, ", but this sampler has ", ours)};
}

/// Returns where the share of `rank` begins in a run of `count`; shares of `world` ranks differ by 1 at most. There is
/// no overflow: a batch has at most 2^32 samples, a world fewer than 2^31 ranks.
std::uint64_t contiguous_begin(std::uint64_t count, std::uint64_t rank, std::uint64_t world) {
    return count / world * rank + count % world * rank / world;
}

}  // namespace

Result<ElasticSampler> ElasticSampler::make(const ElasticSamplerOptions& options) {
    MUSTER_TRY(check_sample_count(options));
    MUSTER_TRY(check_batch_size(options, options.batch_size));
    return ElasticSampler(options);
}

ElasticSampler::ElasticSampler(const ElasticSamplerOptions& options) : options_(options) {}
ElasticSampler::ElasticSampler(ElasticSampler&&) noexcept = default;
ElasticSampler& ElasticSampler::operator=(ElasticSampler&&) noexcept = default;
ElasticSampler::~ElasticSampler() = default;

SampleStep ElasticSampler::step_from(std::uint64_t epoch, std::uint64_t first) const {
    const auto batch = options_.batch_size;
    if (options_.tail == Tail::drop && options_.sample_count - first < batch) {
        ++epoch;
        first = 0;
    }
    const auto left = options_.sample_count - first;
    const auto count = options_.tail == Tail::pad ? batch : std::min(batch, left);
    const bool ends = count >= left || (options_.tail == Tail::drop && left - count < batch);
    return {.epoch = epoch, .first = first, .count = count, .ends_epoch = ends};
}

SampleStep ElasticSampler::next() const {
    return step_from(epoch_, cursor_);
}

Result<SampleStep> ElasticSampler::after(const SampleStep& step) const {
    MUSTER_TRY(check(step));
    return step.ends_epoch ? step_from(step.epoch + 1, 0) : step_from(step.epoch, step.first + step.count);
}

Result<void> ElasticSampler::check(const SampleStep& step) const {
    const auto samples = options_.sample_count;
    const bool inside = step.first < samples && step.count > 0 && step.count <= ElasticSamplerOptions::batch_size_max;
    const auto left = inside ? samples - step.first : 0;
    const bool fits = inside && (step.count <= left || options_.tail == Tail::pad);
    const bool ends = step.ends_epoch ? step.count >= left || options_.tail == Tail::drop : step.count < left;
    if (fits && ends) return {};
    return Error{Errc::invalid_argument, cat("a step of ", step.count, " samples from place ", step.first, " of ",
                                             samples, " does not belong to this sampler; use next() and after()")};
}

Result<std::vector<std::uint64_t>> ElasticSampler::indices(const SampleStep& step, Taker taker) const {
    if (taker.world < 1 || taker.rank < 0 || taker.rank >= taker.world) {
        return Error{Errc::invalid_argument, cat("rank ", taker.rank, " is not in a world of ", taker.world)};
    }
    MUSTER_TRY(check(step));
    if (order_ == nullptr || order_->epoch() != step.epoch) {
        order_.reset();  // frees the memory before the next one is allocated
        order_ = std::make_unique<runtime::EpochOrder>(options_, step.epoch);
    }
    const auto rank = static_cast<std::uint64_t>(taker.rank), world = static_cast<std::uint64_t>(taker.world);
    const bool strided = options_.deal == Deal::strided;
    const auto begin = strided ? rank : contiguous_begin(step.count, rank, world);
    const auto end = strided ? step.count : contiguous_begin(step.count, rank + 1, world);
    const auto stride = strided ? world : 1;
    std::vector<std::uint64_t> own;
    own.reserve(begin < end ? (end - begin + stride - 1) / stride : 0);
    for (auto i = begin; i < end; i += stride) own.push_back(order_->at((step.first + i) % options_.sample_count));
    return own;
}

Result<void> ElasticSampler::commit(const SampleStep& step) {
    MUSTER_TRY(check(step));
    // A dropped tail ends the epoch without a step of its own.
    const bool tail_dropped = options_.tail == Tail::drop && options_.sample_count - cursor_ < step.count;
    const auto epoch = tail_dropped ? epoch_ + 1 : epoch_;
    const auto first = tail_dropped ? 0 : cursor_;
    if (step.epoch != epoch || step.first != first) {
        return Error{Errc::refused, cat("the step at place ", step.first, " of epoch ", step.epoch,
                                        " cannot be committed: the next one is at place ", first, " of epoch ", epoch)};
    }
    epoch_ = step.ends_epoch ? epoch + 1 : epoch;
    cursor_ = step.ends_epoch ? 0 : first + step.count;
    return {};
}

Result<void> ElasticSampler::set_batch_size(std::uint64_t batch_size) {
    MUSTER_TRY(check_batch_size(options_, batch_size));
    options_.batch_size = batch_size;
    return {};
}

std::uint64_t ElasticSampler::steps_from(std::uint64_t first) const {
    const auto left = options_.sample_count - first;
    const auto whole = left / options_.batch_size;
    return options_.tail == Tail::drop || left % options_.batch_size == 0 ? whole : whole + 1;
}

std::uint64_t ElasticSampler::steps_per_epoch() const {
    return steps_from(0);
}

std::uint64_t ElasticSampler::steps_left() const {
    return steps_from(next().first);
}

std::string ElasticSampler::state() const {
    return runtime::encode_state({.samples = options_.sample_count,
                                  .seed = options_.seed,
                                  .order = options_.order,
                                  .epoch = epoch_,
                                  .cursor = cursor_,
                                  .batch_size = options_.batch_size});
}

Result<void> ElasticSampler::load_state(std::string_view text) {
    const auto state = MUSTER_TRY(runtime::decode_state(text));
    if (state.samples != options_.sample_count) {
        return another("data with", cat(state.samples, " samples"), cat(options_.sample_count));
    }
    if (state.seed != options_.seed) return another("seed", cat(state.seed), cat("seed ", options_.seed));
    if (state.order != options_.order) {
        return another("order", cat("'", runtime::name_of(state.order), "'"),
                       cat("'", runtime::name_of(options_.order), "'"));
    }
    if (auto set = set_batch_size(state.batch_size); !set) return with_context(set.error(), "the sampler's state");
    epoch_ = state.epoch;
    cursor_ = state.cursor;
    return {};
}

std::uint64_t ElasticSampler::sample_seed(std::uint64_t epoch, std::uint64_t index) const {
    return runtime::hash_of(runtime::hash_of(options_.seed, epoch), index);
}

}  // namespace muster
