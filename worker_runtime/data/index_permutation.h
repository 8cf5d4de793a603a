// A permutation of 0 .. count-1 that computes each place on its own, without a table in memory. So the order of an
// epoch can be used for data of any size, and from any position.
//
// The numbers form a table of about sqrt(count) rows and as many columns. A Feistel network moves a number in the
// table: in turn, its row is shifted, modulo the rows, by a keyed hash of its column, and its column by a hash of
// its row. Each shift can be undone whatever the hash is (Luby and Rackoff, "How to construct pseudorandom
// permutations from pseudorandom functions", SIAM J. Comput. 1988; with addition instead of xor and any table: Black
// and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). The table has a few more cells than `count`,
// fewer than 2 sqrt(count). A number that ends in one of those passes through the network again until it fits (cycle
// walking).
//
// This is good for shuffling, but it is not a cipher: the hash is a fast one.
#pragma once

#include <array>
#include <cstdint>

namespace muster::runtime {

class IndexPermutation {
  public:
    /// 1 <= count <= 2^63. The key is (seed, epoch).
    IndexPermutation(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch);

    /// Returns the number at `place`; place < count.
    [[nodiscard]] std::uint64_t at(std::uint64_t place) const;
    /// The inverse of at(): at(place_of(index)) == index.
    [[nodiscard]] std::uint64_t place_of(std::uint64_t index) const;

  private:
    static constexpr std::size_t round_count = 8;

    [[nodiscard]] std::uint64_t once(std::uint64_t value) const;
    [[nodiscard]] std::uint64_t undone_once(std::uint64_t value) const;

    std::uint64_t count_;
    std::uint64_t row_count_;     ///< Below 2^32, as is column_count_.
    std::uint64_t column_count_;  ///< row_count_ * column_count_ >= count_.
    std::array<std::uint64_t, round_count> keys_;
};

}  // namespace muster::runtime
