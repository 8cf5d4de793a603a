// What a rank answers to rank 0 about the test of its pair: words of one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "worker_runtime/pairs/pair_test.h"

namespace muster::runtime {

/// The answer of one rank, and its wall clock when it gave it.
struct PairAnswer {
    PairResult result;
    std::int64_t wall_ms = 0;
};

std::string write_answer(const PairAnswer& answer);

/// An error: another build of muster wrote it, in another form. Then nothing is known of the pair.
Result<PairAnswer> read_answer(std::string_view text);

}  // namespace muster::runtime
