#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "muster/distributed_sampler.h"
#include "muster/elastic_sampler.h"
#include "worker_runtime/capi/arguments.h"
#include "worker_runtime/capi/handles.h"

using namespace muster;
using namespace muster::capi;

namespace {

/// A sampler that threads of the caller may share.
template <class Sampler>
struct SamplerObject {
    Sampler sampler;
    std::mutex mutex = {};
};

using DistributedObject = SamplerObject<DistributedSampler>;
using ElasticObject = SamplerObject<ElasticSampler>;

// Made when the library is loaded and never destroyed: threads of the caller may be in a call while the process ends.
auto& distributed_samplers = *new Handles<muster_distributed_sampler, DistributedObject>("distributed sampler");
auto& elastic_samplers = *new Handles<muster_elastic_sampler, ElasticObject>("elastic sampler");

/// Runs `body(sampler)`, one thread at a time.
template <class All, class Handle, class Body>
muster_status with_sampler(const char* function, const All& all, Handle* handle, Body&& body) {
    return with(function, all, handle, [&](auto& found) {
        const std::lock_guard lock(found.mutex);
        return body(found.sampler);
    });
}

Result<std::uint64_t> read_count(std::int64_t count, std::string_view noun) {
    if (count < 0) return invalid(cat("the ", noun, " is ", count, "; it cannot be negative"));
    return static_cast<std::uint64_t>(count);
}

Result<DistributedSamplerOptions> read_options(const muster_distributed_sampler_options* options) {
    const auto given = MUSTER_TRY(read(options));
    return DistributedSamplerOptions{
        .sample_count = MUSTER_TRY(read_count(given.sample_count, "number of samples")),
        .world = given.world_size == 0 ? 1 : given.world_size,
        .rank = given.rank,
        .seed = given.seed,
        .shuffle = MUSTER_TRY(read_enumerator<Shuffle>(given.sequential, 2, "value of sequential")),
        .last = MUSTER_TRY(read_enumerator<LastSamples>(given.drop_last, 2, "value of drop_last"))};
}

Result<ElasticSamplerOptions> read_options(const muster_elastic_sampler_options* options) {
    const auto given = MUSTER_TRY(read(options));
    return ElasticSamplerOptions{.sample_count = MUSTER_TRY(read_count(given.sample_count, "number of samples")),
                                 .batch_size = MUSTER_TRY(read_count(given.batch_size, "batch size")),
                                 .seed = given.seed,
                                 .order = MUSTER_TRY(read_enumerator<SampleOrder>(given.order, 3, "order of samples")),
                                 .deal = MUSTER_TRY(read_enumerator<Deal>(given.deal, 2, "value of deal")),
                                 .tail = MUSTER_TRY(read_enumerator<Tail>(given.tail, 3, "tail"))};
}

Result<SampleStep> read_step(const muster_sample_step* step) {
    if (step == nullptr) return invalid("`step` is NULL");
    const auto given = MUSTER_TRY(read(step));
    return SampleStep{
        .epoch = given.epoch, .first = given.first, .count = given.count, .ends_epoch = given.ends_epoch != 0};
}

Result<void> write_step(const SampleStep& step, muster_sample_step* to) {
    return write(muster_sample_step{.size = sizeof *to,
                                    .epoch = step.epoch,
                                    .first = step.first,
                                    .count = step.count,
                                    .ends_epoch = step.ends_epoch ? 1 : 0},
                 to);
}

/// Tells the caller how many there are, and calls `take` for them if it asks for the indices too.
Result<void> write_indices(std::uint64_t size, const auto& take, std::int64_t* indices, std::size_t capacity,
                           std::size_t* count) {
    if (count != nullptr) *count = size;
    if (indices == nullptr) return {};
    if (capacity < size)
        return Error{Errc::limit_exceeded, cat("there are ", size, " indices, and room for ", capacity)};
    std::ranges::copy(take(), indices);  // an index is below 2^63
    return {};
}

}  // namespace

extern "C" {

muster_status muster_distributed_sampler_make(const muster_distributed_sampler_options* options,
                                              muster_distributed_sampler** sampler) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(sampler, "sampler", nullptr));
        const auto given = MUSTER_TRY(read_options(options));
        auto made = MUSTER_TRY(DistributedSampler::make(given));
        *sampler = distributed_samplers.add(std::make_shared<DistributedObject>(std::move(made)));
        return {};
    });
}

muster_status muster_distributed_sampler_set_epoch(muster_distributed_sampler* sampler, uint64_t epoch) {
    return with_sampler(__func__, distributed_samplers, sampler, [&](DistributedSampler& found) -> Result<void> {
        found.set_epoch(epoch);
        return {};
    });
}

muster_status muster_distributed_sampler_size(muster_distributed_sampler* sampler, uint64_t* count) {
    return with_sampler(__func__, distributed_samplers, sampler,
                        [&](const DistributedSampler& found) { return give(count, "count", found.size()); });
}

muster_status muster_distributed_sampler_indices(muster_distributed_sampler* sampler, int64_t* indices, size_t capacity,
                                                 size_t* count) {
    // A pass begins only where its indices are taken.
    return with_sampler(__func__, distributed_samplers, sampler, [&](DistributedSampler& found) {
        return write_indices(
            found.size(), [&] { return found.indices(); }, indices, capacity, count);
    });
}

muster_status muster_distributed_sampler_order_repeated(muster_distributed_sampler* sampler, int* repeated) {
    return with_sampler(__func__, distributed_samplers, sampler, [&](const DistributedSampler& found) {
        return give(repeated, "repeated", found.order_repeated());
    });
}

muster_status muster_distributed_sampler_release(muster_distributed_sampler* sampler) {
    return guarded(__func__, [&] { return distributed_samplers.release(sampler); });
}

muster_status muster_elastic_sampler_make(const muster_elastic_sampler_options* options,
                                          muster_elastic_sampler** sampler) {
    return guarded(__func__, [&]() -> Result<void> {
        MUSTER_TRY(give(sampler, "sampler", nullptr));
        const auto given = MUSTER_TRY(read_options(options));
        auto made = MUSTER_TRY(ElasticSampler::make(given));
        *sampler = elastic_samplers.add(std::make_shared<ElasticObject>(std::move(made)));
        return {};
    });
}

muster_status muster_elastic_sampler_next(muster_elastic_sampler* sampler, muster_sample_step* step) {
    return with_sampler(__func__, elastic_samplers, sampler,
                        [&](const ElasticSampler& found) { return write_step(found.next(), step); });
}

muster_status muster_elastic_sampler_after(muster_elastic_sampler* sampler, const muster_sample_step* step,
                                           muster_sample_step* later) {
    return with_sampler(__func__, elastic_samplers, sampler, [&](const ElasticSampler& found) -> Result<void> {
        const auto given = MUSTER_TRY(read_step(step));
        return write_step(MUSTER_TRY(found.after(given)), later);
    });
}

muster_status muster_elastic_sampler_indices(muster_elastic_sampler* sampler, const muster_sample_step* step, int rank,
                                             int world_size, int64_t* indices, size_t capacity, size_t* count) {
    return with_sampler(__func__, elastic_samplers, sampler, [&](const ElasticSampler& found) -> Result<void> {
        const auto given = MUSTER_TRY(read_step(step));
        const auto own = MUSTER_TRY(found.indices(given, {.rank = rank, .world = world_size}));
        return write_indices(
            own.size(), [&]() -> const auto& { return own; }, indices, capacity, count);
    });
}

muster_status muster_elastic_sampler_commit(muster_elastic_sampler* sampler, const muster_sample_step* step) {
    return with_sampler(__func__, elastic_samplers, sampler, [&](ElasticSampler& found) -> Result<void> {
        return found.commit(MUSTER_TRY(read_step(step)));
    });
}

muster_status muster_elastic_sampler_set_batch_size(muster_elastic_sampler* sampler, int64_t batch_size) {
    return with_sampler(__func__, elastic_samplers, sampler, [&](ElasticSampler& found) -> Result<void> {
        return found.set_batch_size(MUSTER_TRY(read_count(batch_size, "batch size")));
    });
}

muster_status muster_elastic_sampler_steps_left(muster_elastic_sampler* sampler, uint64_t* steps) {
    return with_sampler(__func__, elastic_samplers, sampler,
                        [&](const ElasticSampler& found) { return give(steps, "steps", found.steps_left()); });
}

muster_status muster_elastic_sampler_state(muster_elastic_sampler* sampler, char* text, size_t capacity,
                                           size_t* needed) {
    return with_sampler(__func__, elastic_samplers, sampler,
                        [&](const ElasticSampler& found) { return write_text(found.state(), text, capacity, needed); });
}

muster_status muster_elastic_sampler_load_state(muster_elastic_sampler* sampler, const char* state) {
    return with_sampler(__func__, elastic_samplers, sampler, [&](ElasticSampler& found) -> Result<void> {
        if (state == nullptr) return invalid("`state` is NULL");
        return found.load_state(state);
    });
}

muster_status muster_elastic_sampler_sample_seed(muster_elastic_sampler* sampler, uint64_t epoch, uint64_t index,
                                                 uint64_t* seed) {
    return with_sampler(__func__, elastic_samplers, sampler, [&](const ElasticSampler& found) {
        return give(seed, "seed", found.sample_seed(epoch, index));
    });
}

muster_status muster_elastic_sampler_release(muster_elastic_sampler* sampler) {
    return guarded(__func__, [&] { return elastic_samplers.release(sampler); });
}
}
