#include "worker_runtime/wires/power_exchange.h"

#include <algorithm>

#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/arithmetic/power_elements.h"
#include "worker_runtime/arithmetic/thin_matrix.h"
#include "worker_runtime/wires/staging.h"

namespace muster::runtime {

namespace {

float* floats(const Buffer& buffer) {
    return static_cast<float*>(buffer.data);
}

}  // namespace

Result<void> PowerExchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    residuals_.prepare(terms.parameters, buckets);
    q_.resize(terms.parameters.size());
    staging_.assign(buckets.size(), {});
    StagingPlan memory(memory_);
    for (const auto& bucket : buckets) {
        auto& mine = staging_[bucket.index];
        mine.plan = settings_.plan(terms.parameters, bucket);
        const auto& plan = mine.plan;
        if (plan.matrices.empty()) continue;
        memory.add(mine.first,
                   {.data = nullptr, .count = plan.p_elements + plan.other_elements, .type = DataType::f32});
        memory.add(mine.second, {.data = nullptr, .count = plan.q_elements, .type = DataType::f32});
        for (const auto& matrix : plan.matrices) {
            auto& q = q_[static_cast<std::size_t>(matrix.slice.parameter)];
            if (!q.empty()) continue;
            q.resize(matrix.row_elements * settings_.columns);
            for (std::size_t i = 0; i < q.size(); ++i) q[i] = power_start(matrix.slice.parameter, i);
        }
    }
    return memory.take(terms);
}

/// Keeps Q: the power method continues from it in the next step. A column of zeros (the gradient had a smaller rank)
/// would stay zero for ever, and NaNs or infinities would stay too, so such columns are initialised anew.
void PowerExchange::keep_for_next(const PowerMatrix& matrix, const float* q) {
    auto& kept = q_[static_cast<std::size_t>(matrix.slice.parameter)];
    for (std::size_t c = 0; c < settings_.columns; ++c) {
        const std::size_t begin = c * matrix.row_elements;
        const std::span column(q + begin, matrix.row_elements);
        const bool zero = std::all_of(column.begin(), column.end(), [](float x) { return x == 0; });
        const bool usable = !zero && !has_non_finite({column.data(), column.size(), DataType::f32});
        for (std::size_t j = 0; j < column.size(); ++j) {
            kept[begin + j] = usable ? column[j] : power_start(matrix.slice.parameter, begin + j);
        }
    }
}

Result<std::optional<Operation>> PowerExchange::advance(const GradientBucket& bucket, int stage) {
    if (!compresses(bucket)) {
        if (stage > 0) return std::optional<Operation>();
        return std::optional(all_reduce_weighted(bucket.gradients, bucket.samples));
    }
    auto& staging = staging_[bucket.index];
    switch (stage) {
        case 0: project(bucket, staging); return std::optional(all_reduce_weighted(staging.first, bucket.samples));
        case 1:
            project_back(bucket, staging);
            return std::optional(all_reduce_weighted(staging.second, bucket.samples));
        default: restore(bucket, staging); return std::optional<Operation>();
    }
}

void PowerExchange::project(const GradientBucket& bucket, Staging& staging) {
    const auto residual = residuals_.of(bucket);
    float* const gradients = floats(bucket.gradients);
    for (const auto& matrix : staging.plan.matrices) {
        float* const m = gradients + matrix.slice.offset;
        // A rank without samples adds nothing; its residuals wait for a step with samples.
        if (bucket.samples > 0) {
            for (std::size_t i = 0; i < matrix.slice.count; ++i) m[i] += residual[matrix.slice.offset + i];
        }
        multiply(m, matrix.rows, matrix.row_elements, q_[static_cast<std::size_t>(matrix.slice.parameter)].data(),
                 settings_.columns, floats(staging.first) + matrix.p_offset);
    }
    float* other = floats(staging.first) + staging.plan.p_elements;
    for (const auto& slice : staging.plan.others) other = std::copy_n(gradients + slice.offset, slice.count, other);
}

void PowerExchange::project_back(const GradientBucket& bucket, Staging& staging) const {
    for (const auto& matrix : staging.plan.matrices) {
        float* const p = floats(staging.first) + matrix.p_offset;
        make_orthonormal(p, matrix.rows, settings_.columns);
        multiply_transposed(floats(bucket.gradients) + matrix.slice.offset, matrix.rows, matrix.row_elements, p,
                            settings_.columns, floats(staging.second) + matrix.q_offset);
    }
}

void PowerExchange::restore(const GradientBucket& bucket, Staging& staging) {
    const auto residual = residuals_.of(bucket);
    float* const gradients = floats(bucket.gradients);
    for (const auto& matrix : staging.plan.matrices) {
        float* const m = gradients + matrix.slice.offset;
        float* const lost = residual.data() + matrix.slice.offset;
        const float* const q = floats(staging.second) + matrix.q_offset;
        if (bucket.samples > 0) std::copy_n(m, matrix.slice.count, lost);
        multiply_out(floats(staging.first) + matrix.p_offset, matrix.rows, q, matrix.row_elements, settings_.columns,
                     m);
        for (std::size_t i = 0; bucket.samples > 0 && i < matrix.slice.count; ++i) lost[i] = left_over(lost[i], m[i]);
        keep_for_next(matrix, q);
    }
    const float* other = floats(staging.first) + staging.plan.p_elements;
    for (const auto& slice : staging.plan.others) {
        std::copy_n(other, slice.count, gradients + slice.offset);
        other += slice.count;
    }
}

void PowerExchange::keep(std::vector<std::byte>& to) const {
    for (const auto& residual : residuals_.all()) add_bytes(to, residual);
    for (const auto& q : q_) add_bytes(to, q);
}

bool PowerExchange::restore(std::span<const std::byte> from) {
    bool fits = true;
    for (auto& residual : residuals_.all()) fits = fits && take_bytes(from, residual);
    for (auto& q : q_) fits = fits && take_bytes(from, q);
    return fits && from.empty();
}

}  // namespace muster::runtime
