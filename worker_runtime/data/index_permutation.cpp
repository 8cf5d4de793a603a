#include "worker_runtime/data/index_permutation.h"

#include <cmath>

#include "rendezvous/base/check.h"
#include "worker_runtime/data/mixing.h"

namespace muster::runtime {

namespace {

constexpr std::uint64_t count_max = std::uint64_t{1} << 63;

/// Returns the smallest number whose square is at least `count`; count <= 2^63.
std::uint64_t root_of(std::uint64_t count) {
    auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(count)));
    while (root * root < count) ++root;
    while ((root - 1) * (root - 1) >= count) --root;
    return root;
}

/// Hashes `value` to 0 .. range-1 (the high half of a product, Lemire 2019); range < 2^32.
std::uint64_t shift_of(std::uint64_t value, std::uint64_t key, std::uint64_t range) {
    return (mixed(value ^ key) >> 32) * range >> 32;
}

std::uint64_t forward(std::uint64_t value, std::uint64_t shift, std::uint64_t range) {
    const auto moved = value + shift;
    return moved >= range ? moved - range : moved;
}

std::uint64_t back(std::uint64_t value, std::uint64_t shift, std::uint64_t range) {
    return value >= shift ? value - shift : value + range - shift;
}

}  // namespace

IndexPermutation::IndexPermutation(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) : count_(count) {
    MUSTER_CHECK(count >= 1 && count <= count_max, count);
    row_count_ = root_of(count);
    column_count_ = (count - 1) / row_count_ + 1;
    std::uint64_t state = hash_of(seed, epoch);
    for (auto& key : keys_) key = next_random(state);
}

std::uint64_t IndexPermutation::once(std::uint64_t value) const {
    auto row = value / column_count_, column = value % column_count_;
    for (std::size_t round = 0; round < round_count; round += 2) {
        row = forward(row, shift_of(column, keys_[round], row_count_), row_count_);
        column = forward(column, shift_of(row, keys_[round + 1], column_count_), column_count_);
    }
    return row * column_count_ + column;
}

std::uint64_t IndexPermutation::undone_once(std::uint64_t value) const {
    auto row = value / column_count_, column = value % column_count_;
    for (std::size_t round = round_count; round > 0; round -= 2) {
        column = back(column, shift_of(row, keys_[round - 1], column_count_), column_count_);
        row = back(row, shift_of(column, keys_[round - 2], row_count_), row_count_);
    }
    return row * column_count_ + column;
}

std::uint64_t IndexPermutation::at(std::uint64_t place) const {
    MUSTER_CHECK(place < count_, place, count_);
    // This ends, because the walk is on a cycle of the network that contains `place` itself.
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
