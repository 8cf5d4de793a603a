// A softmax classifier, the smallest model that learns something real: ten scores, each a weighted sum of the pixels
// and a bias; the scores' softmax is the guess, and the mean cross-entropy is the loss.
//
// Everything here is plain arithmetic in a fixed order: the same samples give the same bits.
#pragma once

#include <span>
#include <vector>

#include "worker_runtime/examples/digits_data.h"

namespace muster::runtime {

/// Weights of one class behind the other, each 64 pixels and the bias.
inline constexpr std::size_t softmax_weight_count = digit_class_count * (digit_pixel_count + 1);

struct SoftmaxModel {
    std::vector<double> weights = std::vector<double>(softmax_weight_count, 0.0);
};

/// What some samples say about the model: sums, so that the parts of several ranks can be added.
struct GradientSum {
    std::vector<double> gradient = std::vector<double>(softmax_weight_count, 0.0);
    double loss = 0;
    double sample_count = 0;
    double right_count = 0;  ///< samples whose best guess was the label
};

/// Adds what `digit` says under `model` to `sum`.
void add_sample(GradientSum& sum, const SoftmaxModel& model, const Digit& digit);

/// Element by element. Floating-point sums depend on the order, so callers add ranks in rank order.
void add(GradientSum& sum, const GradientSum& part);

/// One step of gradient descent along the mean gradient of `sum`, which has at least one sample.
void descend(SoftmaxModel& model, const GradientSum& sum, double learning_rate);

/// The share of `digits` that the model gets right, 0..1.
double accuracy(const SoftmaxModel& model, std::span<const Digit> digits);

}  // namespace muster::runtime
