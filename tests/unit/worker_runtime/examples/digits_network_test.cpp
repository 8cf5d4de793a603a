#include "worker_runtime/examples/digits_network.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

std::vector<const Digit*> some_digits(std::size_t count) {
    static const DigitSet set = *load_digits(MUSTER_DIGITS_FILE);
    std::vector<const Digit*> some;
    for (std::size_t i = 0; i < count; ++i) some.push_back(&set.train[i]);
    return some;
}

struct Gradients {
    std::vector<std::vector<float>> values;  ///< by parameter
    std::vector<int> order;                  ///< in which they were ready
};

Gradients gradients_of(DigitsNetwork& network, std::span<const Digit* const> batch) {
    Gradients gradients;
    for (const auto tensor : network.tensors()) gradients.values.emplace_back(tensor.size(), 7.0F);
    network.forward(batch);
    const auto done = network.backward(
        [&](int parameter) { return std::span(gradients.values[static_cast<std::size_t>(parameter)]); },
        [&](int parameter) {
            gradients.order.push_back(parameter);
            return Result<void>();
        });
    REQUIRE(done.has_value());
    return gradients;
}

}  // namespace

TEST_CASE("a fresh network knows nothing, and is the same for the same seed") {
    DigitsNetwork network, again;
    const auto batch = some_digits(50);
    const auto sums = network.forward(batch);
    CHECK(sums.sample_count == 50);
    CHECK(std::abs(sums.loss / 50 - std::log(10.0)) < 0.5);
    CHECK(again.forward(batch).loss == sums.loss);
    CHECK(DigitsNetwork(2).forward(batch).loss != sums.loss);
}

TEST_CASE("each gradient is the slope of the mean loss") {
    DigitsNetwork network;
    const auto batch = some_digits(20);
    const auto gradients = gradients_of(network, batch);
    const auto tensors = network.tensors();
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        for (std::size_t i = 0; i < tensors[tensor].size(); i += 1 + tensors[tensor].size() / 23) {
            const float before = tensors[tensor][i];
            const float higher = before + 1e-3F, lower = before - 1e-3F;
            tensors[tensor][i] = higher;
            const double above = network.forward(batch).loss;
            tensors[tensor][i] = lower;
            const double below = network.forward(batch).loss;
            tensors[tensor][i] = before;
            const double slope = (above - below) / 20 / (static_cast<double>(higher) - static_cast<double>(lower));
            INFO("tensor " << tensor << ", element " << i);
            CHECK(std::abs(slope - static_cast<double>(gradients.values[tensor][i])) < 1e-6);
        }
    }
}

TEST_CASE("gradients are ready layer by layer, the last layer first") {
    DigitsNetwork network;
    CHECK(gradients_of(network, some_digits(3)).order == std::vector{5, 4, 3, 2, 1, 0});
    CHECK(network.parameters()[4].name == "layer3.weight");
    CHECK(network.parameters()[4].shape == std::vector<std::int64_t>{32, 10});
}

TEST_CASE("a rank without samples gives gradients of zero") {
    DigitsNetwork network;
    for (const auto& gradient : gradients_of(network, {}).values)
        CHECK(gradient == std::vector<float>(gradient.size()));
}

TEST_CASE("backward stops at the first error") {
    DigitsNetwork network;
    network.forward(some_digits(3));
    std::vector<float> room(64 * 48);
    int calls = 0;
    const auto done = network.backward([&](int) { return std::span(room); },
                                       [&](int) {
                                           ++calls;
                                           return Result<void>(Error{Errc::peer_closed, "rank 1 died"});
                                       });
    REQUIRE(done.has_error());
    CHECK(done.error().context == "rank 1 died");
    CHECK(calls == 1);
}
