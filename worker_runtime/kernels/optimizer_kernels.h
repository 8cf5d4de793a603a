// One step of an optimizer whose state is in GPU memory.
#pragma once

#include "worker_runtime/core/optimizer_elements.h"
#include "worker_runtime/kernels/element_kernels.h"

namespace muster::kernels {

/// Converts a gradient element of f32, f16 or bf16 to f32.
MUSTER_HOST_AND_DEVICE inline float gradient_at(const void* gradient, std::uint64_t i, DataType type) {
    return type == DataType::f32 ? static_cast<const float*>(gradient)[i]
                                 : widened(static_cast<const std::uint16_t*>(gradient)[i], type);
}

struct SgdUpdate {
    using Form = Elementwise;
    const void* gradient;
    float* values;
    float* velocity;  ///< null without momentum
    std::uint64_t count;
    runtime::SgdNumbers numbers;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        runtime::sgd_element(numbers, gradient_at(gradient, i, type), values[i],
                             velocity != nullptr ? velocity + i : nullptr);
    }
    void memory(auto&& visit) {
        visit_elements(visit, gradient, count, type);
        visit(values, count);
        if (velocity != nullptr) visit(velocity, count);
    }
};

struct AdamUpdate {
    using Form = Elementwise;
    const void* gradient;
    float* values;
    float* first;
    float* second;
    std::uint64_t count;
    runtime::AdamNumbers numbers;
    DataType type;

    MUSTER_HOST_AND_DEVICE void element(std::uint64_t i) const {
        runtime::adam_element(numbers, gradient_at(gradient, i, type), values[i], first[i], second[i]);
    }
    void memory(auto&& visit) {
        visit_elements(visit, gradient, count, type);
        for (float** each : {&values, &first, &second}) visit(*each, count);
    }
};

}  // namespace muster::kernels
