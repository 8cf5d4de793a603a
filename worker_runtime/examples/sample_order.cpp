#include "worker_runtime/examples/sample_order.h"

#include <numeric>
#include <utility>

namespace muster::runtime {

std::uint64_t next_random(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

std::vector<std::size_t> sample_order(std::uint64_t epoch, std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::uint64_t state = epoch;
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[next_random(state) % i]);
    return order;
}

}  // namespace muster::runtime
