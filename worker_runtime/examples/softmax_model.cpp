#include "worker_runtime/examples/softmax_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rendezvous/base/check.h"

namespace muster::runtime {

namespace {

using Scores = std::array<double, digit_class_count>;

/// The probability of each class.
Scores predict(const SoftmaxModel& model, const Digit& digit) {
    Scores scores;
    for (std::size_t c = 0; c < digit_class_count; ++c) {
        const double* weights = &model.weights[c * (digit_pixel_count + 1)];
        scores[c] = weights[digit_pixel_count];
        for (std::size_t i = 0; i < digit_pixel_count; ++i) scores[c] += weights[i] * digit.pixels[i];
    }
    // exp() of the difference from the largest score cannot overflow, and the shift cancels in the quotient.
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (auto& score : scores) total += score = std::exp(score - largest);
    for (auto& score : scores) score /= total;
    return scores;
}

std::size_t best_guess(const Scores& scores) {
    return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

}  // namespace

void add_sample(GradientSum& sum, const SoftmaxModel& model, const Digit& digit) {
    const auto guess = predict(model, digit);
    for (std::size_t c = 0; c < digit_class_count; ++c) {
        const double error = guess[c] - (c == digit.label ? 1.0 : 0.0);
        double* gradient = &sum.gradient[c * (digit_pixel_count + 1)];
        for (std::size_t i = 0; i < digit_pixel_count; ++i) gradient[i] += error * digit.pixels[i];
        gradient[digit_pixel_count] += error;
    }
    sum.loss -= std::log(std::max(guess[digit.label], 1e-300));
    sum.sample_count += 1;
    sum.right_count += best_guess(guess) == digit.label ? 1 : 0;
}

void add(GradientSum& sum, const GradientSum& part) {
    MUSTER_CHECK(sum.gradient.size() == part.gradient.size(), sum.gradient.size(), part.gradient.size());
    for (std::size_t i = 0; i < sum.gradient.size(); ++i) sum.gradient[i] += part.gradient[i];
    sum.loss += part.loss;
    sum.sample_count += part.sample_count;
    sum.right_count += part.right_count;
}

void descend(SoftmaxModel& model, const GradientSum& sum, double learning_rate) {
    MUSTER_CHECK(sum.sample_count > 0, sum.sample_count);
    for (std::size_t i = 0; i < model.weights.size(); ++i)
        model.weights[i] -= learning_rate * sum.gradient[i] / sum.sample_count;
}

double accuracy(const SoftmaxModel& model, std::span<const Digit> digits) {
    std::size_t right_count = 0;
    for (const auto& digit : digits) right_count += best_guess(predict(model, digit)) == digit.label ? 1 : 0;
    return digits.empty() ? 0 : static_cast<double>(right_count) / static_cast<double>(digits.size());
}

}  // namespace muster::runtime
