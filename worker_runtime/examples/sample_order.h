// Which samples a step takes: a function of the step's number alone, so that a run that goes on from a checkpoint takes
// the same ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::runtime {

/// splitmix64 (Steele, Lea, Flood 2014): the same numbers with every standard library.
std::uint64_t next_random(std::uint64_t& state);

/// The order in which epoch `epoch` visits the samples (Fisher and Yates).
std::vector<std::size_t> sample_order(std::uint64_t epoch, std::size_t count);

}  // namespace muster::runtime
