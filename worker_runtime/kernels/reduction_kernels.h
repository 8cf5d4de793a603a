// Kernels that inspect gradients: they find elements that are not finite, and compute norms.
#pragma once

#include "worker_runtime/kernels/element_kernels.h"

namespace muster::kernels {

/// Converts an element of a floating-point type to f64.
MUSTER_HOST_AND_DEVICE inline double number_at(const void* data, std::uint64_t i, DataType type) {
    if (type == DataType::f32) return static_cast<double>(static_cast<const float*>(data)[i]);
    if (type == DataType::f64) return static_cast<const double*>(data)[i];
    return static_cast<double>(widened(static_cast<const std::uint16_t*>(data)[i], type));
}

/// Sets found[parameter] to 1 for each parameter of a bucket that has a NaN or an infinity. Slice k begins at element
/// begins[k]; the padding between slices is finite.
struct FindNonFinite {
    using Form = Elementwise;
    const void* data;
    std::uint64_t count;
    const std::uint64_t* begins;
    const std::int32_t* parameters;
    std::uint32_t* found;
    std::uint32_t slice_count;
    std::uint32_t parameter_count;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        const double x = number_at(data, i, type);
        if (x - x == 0) return;
        const auto* const all = begins;
        const std::uint32_t slice = place_of(i, slice_count, [all](std::uint32_t k) { return all[k]; });
        found[parameters[slice]] = 1;
    }
    void memory(auto&& visit) {
        visit_elements(visit, data, count, type);
        visit(begins, slice_count);
        visit(parameters, slice_count);
        visit(found, parameter_count);
    }
};

/// Adds the squares of each item's elements to sums[item], in f64. The order of additions depends on `count` alone.
struct SquareSum {
    using Form = SumForm;
    static constexpr std::uint64_t items_max = 512;
    const void* data;
    std::uint64_t count;
    double* sums;
    DataType type;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const {
        const std::uint64_t wanted = (count + 16 * threads - 1) / (16 * threads);
        return wanted < items_max ? wanted : items_max;
    }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t item, std::uint32_t thread,
                                    SumForm::Shared& shared) const {
        if (phase == 0) {
            double sum = 0;
            for (std::uint64_t i = item * threads + thread; i < count; i += items() * threads) {
                const double x = number_at(data, i, type);
                sum += x * x;
            }
            shared.sums[thread] = sum;
        } else if (phase <= halvings) {
            halve(shared.sums, phase - 1, thread, Add());
        } else if (thread == 0) {
            sums[item] += shared.sums[0];
        }
    }
    void memory(auto&& visit) {
        visit_elements(visit, data, count, type);
        visit(sums, items());
    }
};

/// Adds `count` numbers in a fixed order.
struct Total {
    using Form = SumForm;
    const double* from;
    std::uint64_t count;
    double* to;

    MUSTER_HOST_AND_DEVICE std::uint64_t items() const { return 1; }
    MUSTER_HOST_AND_DEVICE void run(std::uint32_t phase, std::uint64_t /*item*/, std::uint32_t thread,
                                    SumForm::Shared& shared) const {
        if (phase == 0) {
            double sum = 0;
            for (std::uint64_t i = thread; i < count; i += threads) sum += from[i];
            shared.sums[thread] = sum;
        } else if (phase <= halvings) {
            halve(shared.sums, phase - 1, thread, Add());
        } else if (thread == 0) {
            *to = shared.sums[0];
        }
    }
    void memory(auto&& visit) {
        visit(from, count);
        visit(to, 1);
    }
};

}  // namespace muster::kernels
