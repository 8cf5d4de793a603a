// Small things that all ranks must know alike before a checkpoint is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// Structures of fixed size, as collectives take them.
template <class T>
std::span<std::uint8_t> bytes_of(std::span<T> values) {
    return {reinterpret_cast<std::uint8_t*>(values.data()), values.size_bytes()};
}

/// A collective: what rank 0 has, a text of at most 1,000 bytes or an error, on every rank.
Result<std::string> from_rank_0(Communicator& world, const Result<std::string>& own, Duration timeout);

struct Agreement {
    bool all_well = true;
    Error failure{};  ///< else: that of the first rank that had one; in a world of several the text names the rank
};

/// A collective: did it go well on all ranks? The result itself is an error only where the communicator fails.
Result<Agreement> all_agree(Communicator& world, const Result<void>& own, Duration timeout);

}  // namespace muster::runtime
