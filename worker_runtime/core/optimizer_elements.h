// The optimizers' arithmetic on one element, for the host and for GPUs: the same operations in the same order, so that
// both have the same bits.
#pragma once

#include <cmath>

#include "worker_runtime/core/host_and_device.h"

namespace muster::runtime {

struct SgdNumbers {
    float rate = 0;
    float decay = 0;
    float momentum = 0;
    bool first = false;  ///< the first update: PyTorch's velocity begins as the first gradient, not as zero
};

/// `velocity` is null without momentum.
MUSTER_HOST_AND_DEVICE inline void sgd_element(const SgdNumbers& numbers, float gradient, float& value,
                                               float* velocity) {
    float slope = gradient + numbers.decay * value;
    if (velocity != nullptr) {
        *velocity = numbers.first ? slope : numbers.momentum * *velocity + slope;
        slope = *velocity;
    }
    value -= numbers.rate * slope;
}

/// Of Adam and AdamW.
struct AdamNumbers {
    float step = 0;        ///< the learning rate over 1 - beta1^n
    float correction = 0;  ///< 1 / sqrt(1 - beta2^n)
    float beta1 = 0;
    float beta2 = 0;
    float rest1 = 0;  ///< 1 - beta1
    float rest2 = 0;
    float epsilon = 0;
    float kept = 1;   ///< what the parameter is multiplied by before
    float share = 0;  ///< of the parameter, in the gradient
};

MUSTER_HOST_AND_DEVICE inline void adam_element(const AdamNumbers& numbers, float gradient, float& value, float& first,
                                                float& second) {
    const float slope = gradient + numbers.share * value;
    first = numbers.beta1 * first + numbers.rest1 * slope;
    second = numbers.beta2 * second + numbers.rest2 * slope * slope;
    value = numbers.kept * value - numbers.step * first / (std::sqrt(second) * numbers.correction + numbers.epsilon);
}

}  // namespace muster::runtime
