#include "worker_runtime/examples/sample_order.h"

#include <algorithm>
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

std::uint64_t steps_per_epoch(std::uint64_t batch_size, std::size_t count) {
    return (count + batch_size - 1) / batch_size;
}

std::vector<std::size_t> share_of_step(std::uint64_t step, std::uint64_t batch_size, std::size_t count, Share share) {
    const auto per_epoch = steps_per_epoch(batch_size, count);
    // Recomputed each step: it costs microseconds, and a step then depends on its number alone.
    const auto order = sample_order(step / per_epoch, count);
    const auto first = step % per_epoch * batch_size;
    const auto end = std::min<std::uint64_t>(first + batch_size, count);
    std::vector<std::size_t> own;
    for (auto i = first + static_cast<std::uint64_t>(share.rank); i < end; i += static_cast<std::uint64_t>(share.world))
        own.push_back(order[i]);
    return own;
}

}  // namespace muster::runtime
