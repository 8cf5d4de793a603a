// Collectives with their memory and with what must be in it afterwards, computed by one thread: for any transport.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "tests/unit/worker_runtime/reduce_reference.h"

namespace muster::test {

/// One collective of all ranks.
struct CollectiveCase {
    Operation operation;          ///< without memory
    std::vector<Bytes> inputs;    ///< of each rank
    std::vector<Bytes> expected;  ///< each rank's output
    std::vector<float> weights;   ///< of each rank; empty: all 1
    bool in_place = false;        ///< reduce_scatter and all_gather: the piece lies in the whole

    [[nodiscard]] std::string text() const;
};

/// Every kind of collective on about `count` elements of one type, with every reduction that the type has.
std::vector<CollectiveCase> collective_cases(int size, DataType type, std::size_t count, std::uint32_t seed);

/// Runs `one` as `rank` with the function that carries out operations. What was wrong, or nothing.
std::string fault_in(const CollectiveCase& one, int rank,
                     const std::function<Result<void>(const Operation&)>& carry_out);

}  // namespace muster::test
