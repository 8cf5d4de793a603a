#include "worker_runtime/core/optimizer_math.h"

#include <cmath>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

void apply(const SgdNumbers& numbers, std::span<const float> gradient, std::span<float> values,
           std::span<float> velocity, std::span<float> /*second*/) {
    if (velocity.empty()) {
        for (std::size_t i = 0; i < values.size(); ++i) sgd_element(numbers, gradient[i], values[i], nullptr);
    } else {
        for (std::size_t i = 0; i < values.size(); ++i) sgd_element(numbers, gradient[i], values[i], &velocity[i]);
    }
}

void apply(const AdamNumbers& numbers, std::span<const float> gradient, std::span<float> values, std::span<float> first,
           std::span<float> second) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        adam_element(numbers, gradient[i], values[i], first[i], second[i]);
    }
}

/// What Adam and AdamW share; `decay` is what the gradient gets of the parameter, `shrink` what the parameter is
/// multiplied by before.
AdamNumbers adam_numbers(const auto& rule, double decay, double shrink, std::uint64_t update) {
    const double count = static_cast<double>(update);
    return {.step = static_cast<float>(rule.learning_rate / (1 - std::pow(rule.beta1, count))),
            .correction = static_cast<float>(1 / std::sqrt(1 - std::pow(rule.beta2, count))),
            .beta1 = static_cast<float>(rule.beta1),
            .beta2 = static_cast<float>(rule.beta2),
            .rest1 = static_cast<float>(1 - rule.beta1),
            .rest2 = static_cast<float>(1 - rule.beta2),
            .epsilon = static_cast<float>(rule.epsilon),
            .kept = static_cast<float>(shrink),
            .share = static_cast<float>(decay)};
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

Result<void> check_one(const auto& rule) {
    if (auto good = must_be(rule.beta1 >= 0 && rule.beta1 < 1, "beta1", "from 0 to below 1", rule.beta1); !good)
        return good;
    if (auto good = must_be(rule.beta2 >= 0 && rule.beta2 < 1, "beta2", "from 0 to below 1", rule.beta2); !good)
        return good;
    return must_be(rule.epsilon > 0, "epsilon", "above 0", rule.epsilon);
}

}  // namespace

SgdNumbers numbers_of(const Sgd& rule, std::uint64_t update) {
    return {.rate = static_cast<float>(rule.learning_rate),
            .decay = static_cast<float>(rule.weight_decay),
            .momentum = static_cast<float>(rule.momentum),
            .first = update == 1};
}

AdamNumbers numbers_of(const Adam& rule, std::uint64_t update) {
    return adam_numbers(rule, rule.weight_decay, 1, update);
}

AdamNumbers numbers_of(const AdamW& rule, std::uint64_t update) {
    return adam_numbers(rule, 0, 1 - rule.learning_rate * rule.weight_decay, update);
}

int moment_count(const OptimizerRule& rule) {
    const auto* const sgd = std::get_if<Sgd>(&rule);
    return sgd == nullptr ? 2 : sgd->momentum > 0 ? 1 : 0;
}

Result<void> check(const OptimizerRule& rule) {
    return std::visit(
        [](const auto& one) -> Result<void> {
            MUSTER_TRY(must_be(one.learning_rate >= 0, "learning_rate", "at least 0", one.learning_rate));
            MUSTER_TRY(must_be(one.weight_decay >= 0, "weight_decay", "at least 0", one.weight_decay));
            return check_one(one);
        },
        rule);
}

void update(const OptimizerRule& rule, std::uint64_t update, std::span<const float> gradient, std::span<float> values,
            std::span<float> first, std::span<float> second) {
    std::visit([&](const auto& one) { apply(numbers_of(one, update), gradient, values, first, second); }, rule);
}

}  // namespace muster::runtime
