#include "worker_runtime/examples/digits_network.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/data/mixing.h"

namespace muster::runtime {

namespace {

bool is_last(std::size_t layer) {
    return layer + 1 == network_layer_count;
}

}  // namespace

void BatchSums::add(const BatchSums& other) {
    loss += other.loss;
    sample_count += other.sample_count;
    right_count += other.right_count;
}

DigitsNetwork::DigitsNetwork(std::uint64_t seed) {
    for (std::size_t layer = 0; layer < network_layer_count; ++layer) {
        const auto inputs = network_widths[layer], outputs = network_widths[layer + 1];
        // Uniform in a range that keeps the spread of values through the layers (Glorot and Bengio 2010).
        const double range = std::sqrt(6.0 / static_cast<double>(inputs + outputs));
        layers_[layer].weight.resize(inputs * outputs);
        for (auto& weight : layers_[layer].weight) {
            const double unit = static_cast<double>(next_random(seed) >> 11) * 0x1p-53;
            weight = static_cast<float>(range * (2 * unit - 1));
        }
        layers_[layer].bias.assign(outputs, 0);
    }
}

std::vector<Parameter> DigitsNetwork::parameters() {
    std::vector<Parameter> all;
    for (std::size_t layer = 0; layer < network_layer_count; ++layer) {
        const auto inputs = static_cast<std::int64_t>(network_widths[layer]);
        const auto outputs = static_cast<std::int64_t>(network_widths[layer + 1]);
        all.push_back(
            {cat("layer", layer + 1, ".weight"), {inputs, outputs}, DataType::f32, layers_[layer].weight.data()});
        all.push_back({cat("layer", layer + 1, ".bias"), {outputs}, DataType::f32, layers_[layer].bias.data()});
    }
    return all;
}

std::vector<std::span<float>> DigitsNetwork::tensors() {
    std::vector<std::span<float>> all;
    for (auto& layer : layers_) {
        all.emplace_back(layer.weight);
        all.emplace_back(layer.bias);
    }
    return all;
}

BatchSums DigitsNetwork::forward(std::span<const Digit* const> batch) {
    rows_ = batch.size();
    values_[0].clear();
    for (const auto* digit : batch) values_[0].insert(values_[0].end(), digit->pixels.begin(), digit->pixels.end());
    for (std::size_t layer = 0; layer < network_layer_count; ++layer) propagate(layer);
    return judge(batch);
}

/// values of the layer after = tanh(values x weight + bias); the last layer's are scores, without the tanh.
void DigitsNetwork::propagate(std::size_t layer) {
    const auto inputs = network_widths[layer], outputs = network_widths[layer + 1];
    const auto& [weight, bias] = layers_[layer];
    auto& out = values_[layer + 1];
    out.resize(rows_ * outputs);
    for (std::size_t row = 0; row < rows_; ++row) {
        double* const to = out.data() + row * outputs;
        const double* const from = values_[layer].data() + row * inputs;
        std::copy(bias.begin(), bias.end(), to);
        for (std::size_t i = 0; i < inputs; ++i) {
            for (std::size_t o = 0; o < outputs; ++o) to[o] += from[i] * weight[i * outputs + o];
        }
        if (!is_last(layer)) std::transform(to, to + outputs, to, [](double value) { return std::tanh(value); });
    }
}

/// The loss and its slope by the scores, which is softmax - one-hot.
BatchSums DigitsNetwork::judge(std::span<const Digit* const> batch) {
    BatchSums sums;
    slopes_ = values_.back();
    for (std::size_t row = 0; row < rows_; ++row) {
        const std::span scores(slopes_.data() + row * digit_class_count, digit_class_count);
        const auto best = std::max_element(scores.begin(), scores.end());
        const auto label = batch[row]->label;
        const double highest = *best, own = scores[label];
        sums.right_count += best - scores.begin() == label ? 1 : 0;
        double total = 0;
        for (auto& score : scores) total += score = std::exp(score - highest);
        for (auto& score : scores) score /= total;
        scores[label] -= 1;
        sums.loss += std::log(total) - (own - highest);
    }
    sums.sample_count = static_cast<double>(rows_);
    return sums;
}

Result<void> DigitsNetwork::backward(const GradientOf& gradient, const GradientReady& ready) {
    for (std::size_t layer = network_layer_count; layer-- > 0;) {
        const int weight = static_cast<int>(2 * layer), bias = weight + 1;
        write_gradients(layer, gradient(weight), gradient(bias));
        // From here on other ranks' gradients of this layer may come in, while the layers before it are computed.
        for (const int parameter : {bias, weight}) {
            if (auto marked = ready(parameter); !marked) return marked;
        }
        if (layer > 0) propagate_back(layer);
    }
    return {};
}

void DigitsNetwork::write_gradients(std::size_t layer, std::span<float> weight, std::span<float> bias) const {
    const auto inputs = network_widths[layer], outputs = network_widths[layer + 1];
    Rows weight_sum(inputs * outputs), bias_sum(outputs);
    for (std::size_t row = 0; row < rows_; ++row) {
        const double* const slope = slopes_.data() + row * outputs;
        const double* const from = values_[layer].data() + row * inputs;
        for (std::size_t o = 0; o < outputs; ++o) bias_sum[o] += slope[o];
        for (std::size_t i = 0; i < inputs; ++i) {
            for (std::size_t o = 0; o < outputs; ++o) weight_sum[i * outputs + o] += from[i] * slope[o];
        }
    }
    const double count = rows_ > 0 ? static_cast<double>(rows_) : 1;
    const auto mean = [count](double sum) { return static_cast<float>(sum / count); };
    std::transform(weight_sum.begin(), weight_sum.end(), weight.begin(), mean);
    std::transform(bias_sum.begin(), bias_sum.end(), bias.begin(), mean);
}

/// From the slopes at what `layer` gives to those at what the layer before it gives, before its tanh.
void DigitsNetwork::propagate_back(std::size_t layer) {
    const auto inputs = network_widths[layer], outputs = network_widths[layer + 1];
    Rows before(rows_ * inputs);
    for (std::size_t row = 0; row < rows_; ++row) {
        const double* const slope = slopes_.data() + row * outputs;
        const double* const from = values_[layer].data() + row * inputs;
        for (std::size_t i = 0; i < inputs; ++i) {
            const float* const weight = layers_[layer].weight.data() + i * outputs;
            before[row * inputs + i] =
                std::inner_product(slope, slope + outputs, weight, 0.0) * (1 - from[i] * from[i]);
        }
    }
    slopes_ = std::move(before);
}

double DigitsNetwork::accuracy(std::span<const Digit> digits) {
    std::vector<const Digit*> batch;
    for (const auto& digit : digits) batch.push_back(&digit);
    return forward(batch).right_count / static_cast<double>(digits.size());
}

}  // namespace muster::runtime
