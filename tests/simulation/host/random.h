// Chance, as an argument: everything random in a run comes from one seed, on every compiler and machine alike.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::simulation {

/// xoshiro256** by Blackman and Vigna, its state filled by splitmix64. The distributions are our own: the standard
/// library's differ between implementations, and a seed must mean the same run everywhere.
class Random {
  public:
    explicit Random(std::uint64_t seed) {
        for (auto& word : state_) word = mix(seed += 0x9E3779B97F4A7C15ULL);
    }

    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// 0 .. bound-1; bound must not be 0. The bias of the remainder is below 2^-40 for all bounds used here.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }
    /// low .. high, both included.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
    }
    Duration between(Duration low, Duration high) { return Duration{between(low.count(), high.count())}; }
    bool chance(std::uint32_t permille) { return below(1000) < permille; }

    template <class T>
    const T& pick(const std::vector<T>& from) {
        return from[below(from.size())];
    }
    /// Seeds a generator of its own, so that drawing more in one place does not change what happens in another.
    Random fork() { return Random(next()); }

  private:
    static std::uint64_t mix(std::uint64_t z) {
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }

    std::array<std::uint64_t, 4> state_{};
};

}  // namespace muster::simulation
