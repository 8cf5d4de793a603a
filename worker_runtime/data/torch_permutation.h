// Repeats torch.randperm on the CPU bit for bit.
//
// PyTorch shuffles by one of two algorithms (at::native::randperm_cpu), both over std::mt19937 seeded with the low 32
// bits of the seed:
//
//   fewer than 214,748,364 samples (2^32 / 20): Fisher-Yates, forward; place i is swapped with place
//       i + draw % (n - i), one 32-bit draw each, for i = 0 .. n-2
//   else: the inside-out variant; value i goes to place draw % (i + 1), and the value from there to place i, one 64-bit
//       draw each (two of 32 bits, the high half first), for i = 0 .. n-1. Older versions draw 32 bits for any n, which
//       favours some places over others
//
// Both were compared with torch 2.13, as whole arrays on both sides of the limit.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::runtime {

/// From this number of samples on, torch draws 64 bits.
inline constexpr std::uint32_t wide_draws_from = 0xffffffff / 20;

/// Returns the numbers 0 .. count-1 in the order of torch.randperm(count) after manual_seed(seed).
std::vector<std::uint32_t> torch_permutation(std::uint32_t count, std::uint64_t seed);

/// The two algorithms, for any count.
std::vector<std::uint32_t> shuffled_forward(std::uint32_t count, std::uint64_t seed);
std::vector<std::uint32_t> shuffled_inside_out(std::uint32_t count, std::uint64_t seed);

}  // namespace muster::runtime
