#include "worker_runtime/wires/device_power_exchange.h"

#include <algorithm>

#include "worker_runtime/kernels/launch.h"

namespace muster::runtime {

namespace {

using kernels::PowerMemory;

template <class T = float>
PowerMemory<T> floats(const Buffer& buffer) {
    return {.data = static_cast<T*>(buffer.data), .count = buffer.count};
}

template <class T>
Buffer bytes_for(const std::vector<T>& values) {
    return {.data = nullptr, .count = values.size() * sizeof(T), .type = DataType::u8};
}

}  // namespace

Result<void> DevicePowerExchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    queue_ = terms.device;
    timeout_ = terms.timeout;
    lay_out(terms, buckets);
    StagingPlan plan(memory_);
    average_.prepare(terms, plan);
    MUSTER_TRY(residuals_.prepare(terms, buckets, plan));
    grams_ = parts_ = {.data = nullptr, .count = 0, .type = DataType::f64};
    parts_.type = DataType::f32;
    for (std::size_t b = 0; b < staging_.size(); ++b) wish(b, plan);
    plan.add(grams_, grams_);
    plan.add(parts_, parts_);
    MUSTER_TRY(plan.take(terms));
    MUSTER_TRY(residuals_.take_place());
    for (const auto& bucket : buckets) staging_[bucket.index].lost = residuals_.of(bucket);
    MUSTER_TRY(take_kept(terms));
    return put_tables();
}

/// Plans which gradients are compressed, and the offsets of their Q.
void DevicePowerExchange::lay_out(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    staging_.assign(buckets.size(), {});
    std::vector<std::size_t> kept(terms.parameters.size());
    for (const auto& bucket : buckets) {
        auto& mine = staging_[bucket.index];
        mine.gradients = bucket.gradients;
        mine.plan = settings_.plan(terms.parameters, bucket);
        for (const auto& matrix : mine.plan.matrices) {
            kept[static_cast<std::size_t>(matrix.slice.parameter)] = matrix.row_elements * settings_.columns;
        }
    }
    kept_offsets_.clear();
    std::size_t total = 0;
    for (const auto count : kept) {
        kept_offsets_.push_back(total);
        total += count;
    }
    kept_.count = total;
    kept_.type = DataType::f32;
    steps_.clear();
    for (const auto& mine : staging_) {
        for (const bool of_q : {false, true}) {
            auto& step = steps_.emplace_back();
            step.exchange = this;
            step.staging = &mine;
            step.of_q = of_q;
        }
    }
}

/// Computes the tables of a bucket, and requests its memory from `plan`.
void DevicePowerExchange::wish(std::size_t b, StagingPlan& plan) {
    auto& mine = staging_[b];
    const std::size_t columns = settings_.columns;
    if (mine.plan.matrices.empty()) return;
    std::uint64_t parts = 0;
    for (const auto& matrix : mine.plan.matrices) {
        const auto& place = mine.places.emplace_back(
            kernels::PowerPlace{.rows = matrix.rows,
                                .inner = matrix.row_elements,
                                .gradient = matrix.slice.offset,
                                .p = matrix.p_offset,
                                .q = matrix.q_offset,
                                .kept = kept_offsets_[static_cast<std::size_t>(matrix.slice.parameter)],
                                .parts = parts,
                                .before = mine.cuts,
                                .parameter = matrix.slice.parameter});
        mine.cuts += place.cuts();
        parts += place.part_count() * columns * place.inner;
    }
    std::uint64_t packed = 0;
    for (const auto& slice : mine.plan.others) {
        mine.slices.push_back({.packed = packed, .gradient = slice.offset});
        packed += slice.count;
    }
    average_.add(mine.first, mine.plan.p_elements + mine.plan.other_elements, plan);
    average_.add(mine.second, mine.plan.q_elements, plan);
    plan.add(mine.places_on_device, bytes_for(mine.places));
    plan.add(mine.slices_on_device, bytes_for(mine.slices));
    grams_.count = std::max(grams_.count, mine.places.size() * columns * columns);
    parts_.count = std::max<std::size_t>(parts_.count, parts);
}

/// Allocates and initialises Q once: it belongs to parameters, not to buckets.
Result<void> DevicePowerExchange::take_kept(const ExchangeTerms& terms) {
    const bool anew = kept_memory_.size_bytes() == 0;
    StagingPlan plan(kept_memory_);
    plan.add(kept_, kept_);
    if (auto taken = plan.take(terms); !taken || !anew || kept_.count == 0) return taken;
    std::vector<float> start(kept_.count);
    for (const auto& mine : staging_) {
        for (const auto& place : mine.places) {
            for (std::size_t i = 0; i < place.inner * settings_.columns; ++i) {
                start[place.kept + i] = power_start(place.parameter, i);
            }
        }
    }
    auto put = queue_->copy(kept_.data, start.data(), kept_.size_bytes());
    return put ? queue_->finish(timeout_) : put;
}

Result<void> DevicePowerExchange::put_tables() {
    const auto put = [&](const Buffer& to, const void* from) {
        return to.count > 0 ? queue_->copy(to.data, from, to.size_bytes()) : Result<void>();
    };
    for (const auto& mine : staging_) {
        MUSTER_TRY(put(mine.places_on_device, mine.places.data()));
        MUSTER_TRY(put(mine.slices_on_device, mine.slices.data()));
    }
    return queue_->finish(timeout_);
}

Result<std::optional<Operation>> DevicePowerExchange::advance(const GradientBucket& bucket, int stage) {
    auto& mine = staging_[bucket.index];
    const int count = collective_count(bucket);
    if (stage == count) return std::optional<Operation>();
    if (count == 1) return std::optional(all_reduce_weighted(mine.gradients, bucket.samples));
    const auto& leg = stage < 2 ? mine.first : mine.second;
    if (stage % 2 == 1) {
        Operation gather = average_.second(leg);
        gather.steps = &steps_[2 * bucket.index + static_cast<std::size_t>(stage / 2)];
        return std::optional(gather);
    }
    Operation exchange = average_.first(leg);
    if (stage > 0) return std::optional(exchange);
    mine.counts = bucket.samples > 0;
    MUSTER_TRY(project(mine));
    exchange.after = MUSTER_TRY(queue_->mark(bucket.index));
    return std::optional(exchange);
}

kernels::PowerTable DevicePowerExchange::table(const Staging& staging) const {
    return {.places = static_cast<const kernels::PowerPlace*>(staging.places_on_device.data),
            .count = static_cast<std::uint32_t>(staging.places.size()),
            .columns = static_cast<std::uint32_t>(settings_.columns),
            .cuts = staging.cuts};
}

kernels::PowerPack DevicePowerExchange::pack(const Staging& staging, bool back) const {
    return {.slices = static_cast<const kernels::PowerSlice*>(staging.slices_on_device.data),
            .gradients = floats(staging.gradients),
            .packed = floats(staging.first.numbers).data + staging.plan.p_elements,
            .count = staging.plan.other_elements,
            .slice_count = static_cast<std::uint32_t>(staging.slices.size()),
            .back = back};
}

Result<void> DevicePowerExchange::project(const Staging& staging) const {
    MUSTER_TRY(kernels::launch(*queue_, pack(staging, false)));
    // A rank without samples adds nothing; its residuals wait for a step with samples.
    if (staging.counts)
        MUSTER_TRY(kernels::launch(*queue_, kernels::PowerAdd{.gradients = floats(staging.gradients).data,
                                                              .lost = floats<const float>(staging.lost).data,
                                                              .count = staging.gradients.count}));
    return kernels::launch(*queue_, kernels::PowerProject{.table = table(staging),
                                                          .gradients = floats<const float>(staging.gradients),
                                                          .kept = floats<const float>(kept_),
                                                          .p = floats(staging.first.numbers)});
}

Result<void> DevicePowerExchange::project_back(const Staging& staging, KernelQueue& stream) const {
    const auto all = table(staging);
    const auto p = floats(staging.first.numbers);
    const auto read_only_p = floats<const float>(staging.first.numbers);
    const auto parts = floats(parts_);
    auto* const grams = static_cast<double*>(grams_.data);
    MUSTER_TRY(kernels::launch(stream, kernels::PowerGram{.table = all, .p = read_only_p, .grams = grams}));
    MUSTER_TRY(
        kernels::launch(stream, kernels::PowerSolve{.grams = grams, .count = all.count, .columns = all.columns}));
    MUSTER_TRY(kernels::launch(stream, kernels::PowerTurn{.table = all, .shares = grams, .p = p}));
    MUSTER_TRY(kernels::launch(
        stream,
        kernels::PowerProjectBack{
            .table = all, .gradients = floats<const float>(staging.gradients), .p = read_only_p, .parts = parts}));
    return kernels::launch(
        stream, kernels::PowerAddParts{
                    .table = all, .parts = floats<const float>(parts_), .q = floats(staging.second.numbers)});
}

Result<void> DevicePowerExchange::restore(const Staging& staging, KernelQueue& stream) const {
    const auto all = table(staging);
    const auto q = floats<const float>(staging.second.numbers);
    auto put = kernels::launch(stream, kernels::PowerRestore{.table = all,
                                                             .gradients = floats(staging.gradients),
                                                             .lost = floats(staging.lost).data,
                                                             .p = floats<const float>(staging.first.numbers),
                                                             .q = q,
                                                             .counts = staging.counts});
    if (put) put = kernels::launch(stream, kernels::PowerKeep{.table = all, .q = q, .kept = floats(kept_)});
    return put ? kernels::launch(stream, pack(staging, true)) : put;
}

Result<void> DevicePowerExchange::Step::before(KernelQueue& stream) const {
    return exchange->average_.make(of_q ? staging->second : staging->first, stream);
}

Result<void> DevicePowerExchange::Step::behind(KernelQueue& stream) const {
    return of_q ? exchange->restore(*staging, stream) : exchange->project_back(*staging, stream);
}

/// Keeps nothing if a copy from the GPU fails: then the communicator has failed, and there is no state to keep.
void DevicePowerExchange::keep(std::vector<std::byte>& to) const {
    const std::size_t before = to.size();
    auto kept = residuals_.keep(to);
    if (kept) kept = keep_device(*queue_, timeout_, kept_, to);
    if (!kept) to.resize(before);
}

bool DevicePowerExchange::restore(std::span<const std::byte> from) {
    auto fits = residuals_.restore(from);
    if (fits && *fits) fits = restore_device(*queue_, timeout_, kept_, from);
    return fits && *fits && from.empty();
}

}  // namespace muster::runtime
