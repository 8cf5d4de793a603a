// Collectives with their memory and with what must be in it afterwards, computed by one thread: for any transport.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "tests/unit/worker_runtime/arithmetic/reduce_reference.h"

namespace muster::test {

/// One collective of all ranks.
struct CollectiveCase {
    Operation operation;          ///< without memory
    std::vector<Bytes> inputs;    ///< of each rank
    std::vector<Bytes> expected;  ///< each rank's output
    std::vector<double> weights;  ///< of each rank; empty: all 1
    bool in_place = false;  ///< the piece lies in the whole; of a reduce, input and output are the root's same memory
    std::vector<std::shared_ptr<const Parts>> parts{};  ///< all_to_all_uneven: of each rank

    [[nodiscard]] std::string text() const;
};

/// Every kind of collective on about `count` elements of one type, with those of `reductions` that the type has. A
/// premul_sum has a factor of its own on each rank. An even seed has averages weighted, and all_gather, gather and
/// reduce in place. The parts of all_to_all_uneven are of different sizes, also empty, and not in a row.
std::vector<CollectiveCase> collective_cases(int size, DataType type, std::size_t count, std::uint32_t seed,
                                             std::span<const ReduceOp> reductions = all_reductions);

/// Runs `one` as `rank` with the function that carries out operations. What was wrong, or nothing.
std::string fault_in(const CollectiveCase& one, int rank,
                     const std::function<Result<void>(const Operation&)>& carry_out);

/// An all_to_all_uneven of two ranks: so many f32 to and from each of them.
Operation uneven_pair(const void* input, void* output, std::size_t sent, std::size_t expected);

/// Sends `count` elements of `type` to the next rank, and receives as many from the one before. What was wrong, or
/// nothing.
std::string fault_in_messages(int size, int rank, DataType type, std::size_t count,
                              const std::function<Result<void>(const Operation&)>& carry_out);

}  // namespace muster::test
