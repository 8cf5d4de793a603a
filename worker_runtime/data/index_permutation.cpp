#include "worker_runtime/data/index_permutation.h"

#include <bit>

#include "rendezvous/base/check.h"
#include "worker_runtime/data/mixing.h"

namespace muster::runtime {

namespace {

constexpr std::uint64_t count_max = std::uint64_t{1} << 63;

std::uint64_t mask_of(int bits) {
    return (std::uint64_t{1} << bits) - 1;
}

/// The hash's high bits, which depend on all of its input.
std::uint64_t round_value(std::uint64_t half, std::uint64_t key) {
    return mixed(half ^ key) >> 32;
}

}  // namespace

IndexPermutation::IndexPermutation(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) : count_(count) {
    MUSTER_CHECK(count >= 1 && count <= count_max, count);
    const auto bits = static_cast<int>(std::bit_width(count - 1));
    low_bits_ = bits / 2;
    low_mask_ = mask_of(low_bits_);
    high_mask_ = mask_of(bits - low_bits_);
    std::uint64_t state = hash_of(seed, epoch);
    for (auto& key : keys_) key = next_random(state);
}

std::uint64_t IndexPermutation::once(std::uint64_t value) const {
    auto low = value & low_mask_, high = value >> low_bits_;
    for (std::size_t round = 0; round < round_count; round += 2) {
        high ^= round_value(low, keys_[round]) & high_mask_;
        low ^= round_value(high, keys_[round + 1]) & low_mask_;
    }
    return high << low_bits_ | low;
}

std::uint64_t IndexPermutation::undone_once(std::uint64_t value) const {
    auto low = value & low_mask_, high = value >> low_bits_;
    for (std::size_t round = round_count; round > 0; round -= 2) {
        low ^= round_value(high, keys_[round - 1]) & low_mask_;
        high ^= round_value(low, keys_[round - 2]) & high_mask_;
    }
    return high << low_bits_ | low;
}

std::uint64_t IndexPermutation::at(std::uint64_t place) const {
    MUSTER_CHECK(place < count_, place, count_);
    // Ends: the walk is on a cycle of the network, and comes back to `place` at the latest.
    do place = once(place);
    while (place >= count_);
    return place;
}

std::uint64_t IndexPermutation::place_of(std::uint64_t index) const {
    MUSTER_CHECK(index < count_, index, count_);
    do index = undone_once(index);
    while (index >= count_);
    return index;
}

}  // namespace muster::runtime
