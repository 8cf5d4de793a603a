// The network of the example: 64 pixels, two layers of tanh, ten scores whose softmax is the guess; the mean
// cross-entropy is the loss. Forward and backward pass are written out, so that it shows where a trainer calls the
// gradient reducer: backward() goes from the last layer to the first, writes each gradient into memory that the caller
// names, and says at once that it is complete.
//
// Parameters are f32. Arithmetic inside one pass is f64 in a fixed order: the same samples give the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "muster/parameter.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/examples/digits_data.h"

namespace muster::runtime {

inline constexpr std::array<std::size_t, 4> network_widths = {digit_pixel_count, 48, 32, digit_class_count};
inline constexpr std::size_t network_layer_count = network_widths.size() - 1;

/// Sums over samples, so that those of several ranks can be added.
struct BatchSums {
    double loss = 0;
    double sample_count = 0;
    double right_count = 0;  ///< Samples that were classified correctly.

    void add(const BatchSums& other);
};

/// Where the gradient of a parameter goes: as many elements as the parameter has. Parameters are counted as in
/// DigitsNetwork::parameters().
using GradientOf = std::function<std::span<float>(int parameter)>;
/// That gradient is complete.
using GradientReady = std::function<Result<void>(int parameter)>;

class DigitsNetwork {
  public:
    /// Small random weights; the same for the same seed, on every machine.
    explicit DigitsNetwork(std::uint64_t seed = 1);

    /// In the order of the forward pass: "layer1.weight" (inputs x outputs), "layer1.bias", "layer2.weight" ... They
    /// point into memory of this object, and stay valid when it is moved.
    [[nodiscard]] std::vector<Parameter> parameters();
    /// The same parameters' elements.
    [[nodiscard]] std::vector<std::span<float>> tensors();

    /// Guesses the samples of `batch`, and keeps what backward() needs.
    BatchSums forward(std::span<const Digit* const> batch);

    /// The gradients of the mean loss of the last forward(); zeros after an empty batch. Stops at the first error.
    Result<void> backward(const GradientOf& gradient, const GradientReady& ready);

    /// The share of `digits` that it gets right, 0..1.
    [[nodiscard]] double accuracy(std::span<const Digit> digits);

  private:
    struct Layer {
        std::vector<float> weight;  ///< Row i has the weights from input i to each output.
        std::vector<float> bias;
    };
    /// One row a sample.
    using Rows = std::vector<double>;

    void propagate(std::size_t layer);
    BatchSums judge(std::span<const Digit* const> batch);
    void write_gradients(std::size_t layer, std::span<float> weight, std::span<float> bias) const;
    void propagate_back(std::size_t layer);

    std::array<Layer, network_layer_count> layers_;
    std::size_t rows_ = 0;                            ///< Samples of the last forward().
    std::array<Rows, network_widths.size()> values_;  ///< [0] the pixels, then the output of each layer.
    Rows slopes_;  ///< Gradients of the summed loss with respect to the current layer's output, before its tanh.
};

}  // namespace muster::runtime
