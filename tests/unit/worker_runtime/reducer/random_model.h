// Random models and orders for property tests. One number makes one of them; a failing test prints it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "worker_runtime/core/bucket_plan.h"

namespace muster::test {

class RandomModel {
  public:
    explicit RandomModel(std::uint32_t seed) : random_(seed) {}

    /// At least `low`, at most `high`.
    std::size_t number(std::size_t low, std::size_t high) {
        return std::uniform_int_distribution<std::size_t>(low, high)(random_);
    }

    bool chance(std::size_t percent) { return number(1, 100) <= percent; }

    std::vector<Parameter> parameters(std::size_t count_max = 60) {
        constexpr DataType types[] = {DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
        const bool mixed = chance(40);
        std::vector<Parameter> all(number(1, count_max));
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].name = "p" + std::to_string(i);
            all[i].type = mixed ? types[number(0, 3)] : DataType::f32;
            for (std::size_t d = number(0, 3); d > 0; --d) {
                all[i].shape.push_back(static_cast<std::int64_t>(chance(2) ? 0 : number(1, chance(20) ? 300 : 20)));
            }
        }
        return all;
    }

    runtime::BucketCaps caps() {
        return {.first_bytes = number(1, 4000),
                .cap_bytes = number(1, 40000),
                .last_bytes = chance(30) ? 0 : number(0, 4000),
                .pieces = chance(50) ? 1 : number(2, 8)};
    }

    std::vector<std::int32_t> shuffled(std::size_t count) {
        std::vector<std::int32_t> order(count);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random_);
        return order;
    }

    runtime::ParameterOrder order(std::size_t count) {
        return {.parameters = shuffled(count), .rare_count = chance(60) ? 0 : number(0, count)};
    }

  private:
    std::mt19937 random_;
};

}  // namespace muster::test
