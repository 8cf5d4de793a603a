// The test of one pair of nodes: they connect as ranks of a job do, with the job's key, and move small and large
// messages both ways.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/base/time.h"
#include "worker_runtime/pairs/pairing.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

struct PairResult {
    bool passed = false;
    std::string why{};          ///< What failed, one sentence.
    int latency_us = 0;         ///< Median of an all-reduce of 64 bytes.
    int mbytes_per_s = 0;       ///< Best of an all-reduce of 4 MiB; each node sends and receives as much.
    std::int64_t clock_ms = 0;  ///< How far the second rank's wall clock is ahead of the first's.
};

struct PairTerms {
    std::string name;  ///< Unique in the job.
    NodePair ranks;
    bool is_first = true;  ///< True for the rank that stands first in `ranks`.
    std::shared_ptr<MeetingPlace> place;
};

/// The time for one step: connecting, or one message.
inline constexpr Duration pair_step_limit = 3s;
/// A test that fails is repeated so often, so that chance does not decide. One that met the limit of a step is not: the
/// kernel has sent again several times by then.
inline constexpr int pair_tries = 3;
/// The most that test_pair() takes: each try connects, moves messages and compares.
inline constexpr Duration pair_limit = pair_tries * 4 * pair_step_limit;

std::int64_t wall_clock_ms();

/// Both ranks call it at about the same time, and both get the same `passed`.
PairResult test_pair(const PairTerms& terms);

}  // namespace muster::runtime
