// Pseudorandom numbers that are equal with every standard library: splitmix64 (Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
#pragma once

#include <cstdint>

namespace muster::runtime {

/// A bijection of 64 bits: each bit of the input changes about half of the output bits.
constexpr std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

constexpr std::uint64_t next_random(std::uint64_t& state) {
    return mixed(state += 0x9e3779b97f4a7c15U);
}

/// Combines two numbers into one; their order matters.
constexpr std::uint64_t hash_of(std::uint64_t first, std::uint64_t second) {
    std::uint64_t state = mixed(first + 0x9e3779b97f4a7c15U) ^ second;
    return next_random(state);
}

}  // namespace muster::runtime
