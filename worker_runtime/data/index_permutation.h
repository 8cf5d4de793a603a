// A permutation of 0 .. count-1 whose places are computed one by one, in no memory: the order of an epoch over data of
// any size, and the way to begin in the middle of it.
//
// A Feistel network over the bits that count - 1 needs, cut into a low and a high half that may differ by one bit: in
// turn each half is xor-ed with a keyed hash of the other, which can be undone whatever the hash is (Luby and Rackoff,
// "How to construct pseudorandom permutations from pseudorandom functions", SIAM J. Comput. 1988). The network permutes
// the next power of two; a result beyond `count` goes through it again until one fits (cycle walking: Black and
// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), less than twice on average.
//
// Good for shuffling, and no cipher: the hash is a fast one.
#pragma once

#include <array>
#include <cstdint>

namespace muster::runtime {

class IndexPermutation {
  public:
    /// 1 <= count <= 2^63. The key is (seed, epoch).
    IndexPermutation(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch);

    /// The number at `place`, both below count.
    [[nodiscard]] std::uint64_t at(std::uint64_t place) const;
    /// at(place_of(index)) == index.
    [[nodiscard]] std::uint64_t place_of(std::uint64_t index) const;

  private:
    static constexpr std::size_t round_count = 8;

    [[nodiscard]] std::uint64_t once(std::uint64_t value) const;
    [[nodiscard]] std::uint64_t undone_once(std::uint64_t value) const;

    std::uint64_t count_;
    int low_bits_;
    std::uint64_t low_mask_;
    std::uint64_t high_mask_;
    std::array<std::uint64_t, round_count> keys_;
};

}  // namespace muster::runtime
