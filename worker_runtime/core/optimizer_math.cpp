#include "worker_runtime/core/optimizer_math.h"

#include <cmath>

#include "rendezvous/base/text.h"

namespace muster::runtime {

namespace {

void apply(const Sgd& rule, std::uint64_t number, std::span<const float> gradient, std::span<float> values,
           std::span<float> velocity, std::span<float> /*second*/) {
    const auto rate = static_cast<float>(rule.learning_rate);
    const auto decay = static_cast<float>(rule.weight_decay);
    const auto momentum = static_cast<float>(rule.momentum);
    for (std::size_t i = 0; i < values.size(); ++i) {
        float slope = gradient[i] + decay * values[i];
        if (!velocity.empty()) {
            // PyTorch's velocity begins as the first gradient, not as zero.
            velocity[i] = number == 1 ? slope : momentum * velocity[i] + slope;
            slope = velocity[i];
        }
        values[i] -= rate * slope;
    }
}

/// What Adam and AdamW share; `decay` is what the gradient gets of the parameter, `shrink` what the parameter is
/// multiplied by before.
template <class Rule>
void adam(const Rule& rule, double decay, double shrink, std::uint64_t number, std::span<const float> gradient,
          std::span<float> values, std::span<float> first, std::span<float> second) {
    const double count = static_cast<double>(number);
    const auto step = static_cast<float>(rule.learning_rate / (1 - std::pow(rule.beta1, count)));
    const auto correction = static_cast<float>(1 / std::sqrt(1 - std::pow(rule.beta2, count)));
    const auto beta1 = static_cast<float>(rule.beta1);
    const auto beta2 = static_cast<float>(rule.beta2);
    const auto rest1 = static_cast<float>(1 - rule.beta1);
    const auto rest2 = static_cast<float>(1 - rule.beta2);
    const auto epsilon = static_cast<float>(rule.epsilon);
    const auto kept = static_cast<float>(shrink);
    const auto share = static_cast<float>(decay);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float slope = gradient[i] + share * values[i];
        first[i] = beta1 * first[i] + rest1 * slope;
        second[i] = beta2 * second[i] + rest2 * slope * slope;
        values[i] = kept * values[i] - step * first[i] / (std::sqrt(second[i]) * correction + epsilon);
    }
}

void apply(const Adam& rule, std::uint64_t number, std::span<const float> gradient, std::span<float> values,
           std::span<float> first, std::span<float> second) {
    adam(rule, rule.weight_decay, 1, number, gradient, values, first, second);
}

void apply(const AdamW& rule, std::uint64_t number, std::span<const float> gradient, std::span<float> values,
           std::span<float> first, std::span<float> second) {
    adam(rule, 0, 1 - rule.learning_rate * rule.weight_decay, number, gradient, values, first, second);
}

Result<void> must_be(bool good, std::string_view setting, std::string_view rule, double value) {
    if (good) return {};
    return Error{Errc::invalid_argument, cat(setting, " must be ", rule, ", not ", value)};
}

Result<void> check_one(const Sgd& rule) {
    if (auto good = must_be(rule.momentum >= 0 && rule.momentum < 1, "momentum", "from 0 to below 1", rule.momentum);
        !good) {
        return good;
    }
    return {};
}

template <class Rule>
Result<void> check_one(const Rule& rule) {
    if (auto good = must_be(rule.beta1 >= 0 && rule.beta1 < 1, "beta1", "from 0 to below 1", rule.beta1); !good)
        return good;
    if (auto good = must_be(rule.beta2 >= 0 && rule.beta2 < 1, "beta2", "from 0 to below 1", rule.beta2); !good)
        return good;
    return must_be(rule.epsilon > 0, "epsilon", "above 0", rule.epsilon);
}

}  // namespace

int moment_count(const OptimizerRule& rule) {
    const auto* const sgd = std::get_if<Sgd>(&rule);
    return sgd == nullptr ? 2 : sgd->momentum > 0 ? 1 : 0;
}

Result<void> check(const OptimizerRule& rule) {
    return std::visit(
        [](const auto& one) -> Result<void> {
            if (auto good = must_be(one.learning_rate >= 0, "learning_rate", "at least 0", one.learning_rate); !good) {
                return good;
            }
            if (auto good = must_be(one.weight_decay >= 0, "weight_decay", "at least 0", one.weight_decay); !good) {
                return good;
            }
            return check_one(one);
        },
        rule);
}

void update(const OptimizerRule& rule, std::uint64_t update, std::span<const float> gradient, std::span<float> values,
            std::span<float> first, std::span<float> second) {
    std::visit([&](const auto& one) { apply(one, update, gradient, values, first, second); }, rule);
}

}  // namespace muster::runtime
