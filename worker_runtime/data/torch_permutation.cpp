#include "worker_runtime/data/torch_permutation.h"

#include <numeric>
#include <random>
#include <utility>

namespace muster::runtime {

std::vector<std::uint32_t> shuffled_forward(std::uint32_t count, std::uint64_t seed) {
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    std::mt19937 draw(static_cast<std::uint32_t>(seed));
    for (std::uint32_t i = 0; i + 1 < count; ++i) {
        const auto far = static_cast<std::uint32_t>(draw()) % (count - i);
        std::swap(order[i], order[i + far]);
    }
    return order;
}

std::vector<std::uint32_t> shuffled_inside_out(std::uint32_t count, std::uint64_t seed) {
    std::vector<std::uint32_t> order(count);
    std::mt19937 draw(static_cast<std::uint32_t>(seed));
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint64_t high = draw();
        const std::uint64_t wide = (high << 32) | draw();
        const auto place = static_cast<std::uint32_t>(wide % (std::uint64_t{i} + 1));
        order[i] = order[place];
        order[place] = i;
    }
    return order;
}

std::vector<std::uint32_t> torch_permutation(std::uint32_t count, std::uint64_t seed) {
    return count < wide_draws_from ? shuffled_forward(count, seed) : shuffled_inside_out(count, seed);
}

}  // namespace muster::runtime
