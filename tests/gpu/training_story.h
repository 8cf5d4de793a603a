// What the ranks of a made-up training do, step by step, and what a reducer on the host makes of it: that is what a
// compressed wire on GPUs must give, bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/gradient_reducer.h"
#include "tests/gpu/device_training.h"

namespace muster::test {

/// Parameters of three types, without memory.
std::vector<Parameter> mixed_parameters();

struct TrainingStory {
    DeviceTraining how;
    int size = 1;

    [[nodiscard]] bool uses(std::uint64_t step, int rank, std::size_t parameter) const;
    [[nodiscard]] bool runs(std::uint64_t step, int rank) const;
    [[nodiscard]] float samples(std::uint64_t step, int rank) const;
    /// Zeroes where the rank does not use it.
    [[nodiscard]] std::vector<std::byte> own(std::uint64_t step, int rank, std::size_t parameter) const;
    /// Parameters in the order in which they are given, without those that a local step before has given.
    [[nodiscard]] std::vector<std::size_t> given(std::uint64_t step, int rank) const;
    [[nodiscard]] std::vector<std::size_t> given_before(std::uint64_t step, int rank) const;
};

struct HostRun {
    std::string wrong;
    std::vector<std::vector<std::vector<std::byte>>> gradients;  ///< by step and parameter
    std::vector<ReducerState> states;                            ///< of each rank, in the end
};

HostRun train_on_host(const TrainingStory& story);

}  // namespace muster::test
