// Small values on which all ranks agree before a checkpoint is read.
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

/// A collective: returns rank 0's value on every rank, a text of at most 1,000 bytes or an error.
Result<std::string> from_rank_0(Communicator& world, const Result<std::string>& own, Duration timeout);

struct Agreement {
    bool all_well = true;
    Error failure{};  ///< else: the error of the first rank that had one; with several ranks the text names the rank
};

/// A collective: reports whether all ranks succeeded. The result itself is an error only if the communicator fails.
Result<Agreement> all_agree(Communicator& world, const Result<void>& own, Duration timeout);

}  // namespace muster::runtime
