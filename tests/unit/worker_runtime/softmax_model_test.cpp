#include "worker_runtime/examples/softmax_model.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::runtime;

namespace {

GradientSum sum_of(const SoftmaxModel& model, std::span<const Digit> digits) {
    GradientSum sum;
    for (const auto& digit : digits) add_sample(sum, model, digit);
    return sum;
}

std::vector<Digit> some_digits() {
    return load_digits(MUSTER_DIGITS_FILE)->train;
}

}  // namespace

TEST_CASE("a model that knows nothing gives each class a tenth") {
    const auto digits = some_digits();
    const auto sum = sum_of({}, std::span(digits).first(50));
    CHECK(std::abs(sum.loss / 50 - std::log(10.0)) < 1e-12);
    CHECK(sum.sample_count == 50);
}

TEST_CASE("the gradient is the slope of the loss") {
    const auto digits = some_digits();
    const auto few = std::span(digits).first(20);
    SoftmaxModel model;
    for (std::size_t i = 0; i < model.weights.size(); ++i) model.weights[i] = 0.01 * static_cast<double>(i % 7);
    const auto sum = sum_of(model, few);
    const double step = 1e-5;
    for (const std::size_t i : {std::size_t{3}, std::size_t{20}, std::size_t{64}, std::size_t{300}, std::size_t{649}}) {
        auto higher = model, lower = model;
        higher.weights[i] += step;
        lower.weights[i] -= step;
        const double slope = (sum_of(higher, few).loss - sum_of(lower, few).loss) / (2 * step);
        CHECK(std::abs(slope - sum.gradient[i]) < 1e-5);
    }
}

TEST_CASE("adding the parts in order gives the same bits every time, and nearly the whole") {
    const auto digits = some_digits();
    const auto all = std::span(digits);
    const auto added = [&] {
        GradientSum sum;
        add(sum, sum_of({}, all.first(30)));
        add(sum, sum_of({}, all.subspan(30, 30)));
        return sum;
    };
    const auto once = added(), again = added(), whole = sum_of({}, all.first(60));
    CHECK(once.gradient == again.gradient);
    for (std::size_t i = 0; i < whole.gradient.size(); ++i)
        CHECK(std::abs(once.gradient[i] - whole.gradient[i]) < 1e-9);
    CHECK(once.right_count == whole.right_count);
}

TEST_CASE("descent learns the digits it has seen, and most that it has not") {
    const auto digits = *load_digits(MUSTER_DIGITS_FILE);
    SoftmaxModel model;
    for (int i = 0; i < 100; ++i) descend(model, sum_of(model, digits.train), 0.5);
    CHECK(accuracy(model, digits.train) > 0.92);
    CHECK(accuracy(model, digits.test) > 0.90);
}
