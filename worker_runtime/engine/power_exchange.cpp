#include "worker_runtime/engine/power_exchange.h"

#include <algorithm>

#include "rendezvous/base/text.h"
#include "worker_runtime/engine/gradient_math.h"
#include "worker_runtime/engine/staging.h"
#include "worker_runtime/engine/thin_matrix.h"

namespace muster::runtime {

namespace {

float* floats(const Buffer& buffer) {
    return static_cast<float*>(buffer.data);
}

}  // namespace

std::string PowerExchange::name() const {
    return cat("PowerSGD of rank ", columns_, " from step ", start_step_);
}

bool PowerExchange::compresses(const GradientBucket& bucket) const {
    return bucket.step >= start_step_ && !staging_[bucket.index].matrices.empty();
}

Result<void> PowerExchange::prepare(const ExchangeTerms& terms, std::span<const GradientBucket> buckets) {
    residuals_.prepare(terms.parameters, buckets);
    q_.resize(terms.parameters.size());
    staging_.assign(buckets.size(), {});
    StagingPlan memory(memory_);
    for (const auto& bucket : buckets) {
        if (bucket.gradients.type != DataType::f32) continue;
        auto& mine = staging_[bucket.index];
        plan(terms, bucket, mine);
        if (mine.matrices.empty()) continue;
        memory.add(mine.first, mine.first);
        memory.add(mine.second, mine.second);
        for (const auto& matrix : mine.matrices) {
            auto& q = q_[static_cast<std::size_t>(matrix.slice.parameter)];
            if (!q.empty()) continue;
            q.resize(matrix.row_elements * columns_);
            fill_anew(q, matrix.slice.parameter);
        }
    }
    return memory.take(terms);
}

/// The next step of the power method starts where this one ended. A column that is zero (there was less to send than
/// fits) would stay so for ever, and one that is no number too: those start anew.
void PowerExchange::keep_for_next(const Matrix& matrix, const float* q, bool finite) {
    auto& kept = q_[static_cast<std::size_t>(matrix.slice.parameter)];
    fill_anew(kept, matrix.slice.parameter);
    if (!finite) return;
    for (std::size_t c = 0; c < columns_; ++c) {
        bool zero = true;
        for (std::size_t j = 0; j < matrix.row_elements && zero; ++j) zero = q[j * columns_ + c] == 0;
        if (zero) continue;
        for (std::size_t j = 0; j < matrix.row_elements; ++j) kept[j * columns_ + c] = q[j * columns_ + c];
    }
}

/// Who is compressed, and where everything lies.
void PowerExchange::plan(const ExchangeTerms& terms, const GradientBucket& bucket, Staging& staging) const {
    std::size_t p_elements = 0;
    std::size_t q_elements = 0;
    std::size_t other_elements = 0;
    for (const auto& slice : bucket.slices) {
        const auto& shape = terms.parameters[static_cast<std::size_t>(slice.parameter)].shape;
        const std::size_t rows = shape.empty() ? 0 : static_cast<std::size_t>(shape[0]);
        const std::size_t row_elements = rows == 0 ? 0 : slice.count / rows;
        if (2 * columns_ * (rows + row_elements) > slice.count || slice.count == 0) {
            staging.others.push_back(slice);
            other_elements += slice.count;
            continue;
        }
        staging.matrices.push_back({.slice = slice,
                                    .rows = rows,
                                    .row_elements = row_elements,
                                    .p_offset = p_elements,
                                    .q_offset = q_elements});
        p_elements += rows * columns_;
        q_elements += row_elements * columns_;
    }
    staging.others_offset = p_elements;
    staging.first = {.data = nullptr, .count = p_elements + other_elements, .type = DataType::f32};
    staging.second = {.data = nullptr, .count = q_elements, .type = DataType::f32};
}

/// The same numbers on every rank.
void PowerExchange::fill_anew(std::vector<float>& q, std::int32_t parameter) const {
    std::uint32_t state = static_cast<std::uint32_t>(parameter) * 2654435761u + 1;
    for (auto& each : q) {
        state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator: any spread-out start will do
        each = static_cast<float>(state >> 8) * 0x1p-23f - 1;
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
    for (const auto& matrix : staging.matrices) {
        float* const m = gradients + matrix.slice.offset;
        // A rank that only keeps company has no say, and what it lost waits for a gradient that counts.
        if (bucket.samples > 0) {
            for (std::size_t i = 0; i < matrix.slice.count; ++i) m[i] += residual[matrix.slice.offset + i];
        }
        multiply(m, matrix.rows, matrix.row_elements, q_[static_cast<std::size_t>(matrix.slice.parameter)].data(),
                 columns_, floats(staging.first) + matrix.p_offset);
    }
    float* other = floats(staging.first) + staging.others_offset;
    for (const auto& slice : staging.others) other = std::copy_n(gradients + slice.offset, slice.count, other);
}

void PowerExchange::project_back(const GradientBucket& bucket, Staging& staging) const {
    for (const auto& matrix : staging.matrices) {
        float* const p = floats(staging.first) + matrix.p_offset;
        make_orthonormal(p, matrix.rows, columns_);
        multiply_transposed(floats(bucket.gradients) + matrix.slice.offset, matrix.rows, matrix.row_elements, p,
                            columns_, floats(staging.second) + matrix.q_offset);
    }
}

void PowerExchange::restore(const GradientBucket& bucket, Staging& staging) {
    const auto residual = residuals_.of(bucket);
    float* const gradients = floats(bucket.gradients);
    for (const auto& matrix : staging.matrices) {
        float* const m = gradients + matrix.slice.offset;
        float* const lost = residual.data() + matrix.slice.offset;
        const float* const q = floats(staging.second) + matrix.q_offset;
        if (bucket.samples > 0) std::copy_n(m, matrix.slice.count, lost);
        multiply_out(floats(staging.first) + matrix.p_offset, matrix.rows, q, matrix.row_elements, columns_, m);
        const bool finite = !has_non_finite({m, matrix.slice.count, DataType::f32});
        if (!finite) std::fill_n(lost, matrix.slice.count, 0.0f);  // it must not come back with the next step
        if (finite && bucket.samples > 0) {
            for (std::size_t i = 0; i < matrix.slice.count; ++i) lost[i] -= m[i];
        }
        keep_for_next(matrix, q, finite);
    }
    const float* other = floats(staging.first) + staging.others_offset;
    for (const auto& slice : staging.others) {
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
