// The test of a pair or of a larger group of nodes: they connect as ranks of a job do, with the job's key, and move
// small and large messages both ways.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/time.h"
#include "worker_runtime/pairs/group_search.h"
#include "worker_runtime/transport/meeting_place.h"

namespace muster::runtime {

struct PairResult {
    bool passed = false;
    std::string why{};   ///< What failed, one sentence.
    int latency_us = 0;  ///< Median of an all-reduce of 64 bytes.
    /// What a node sends, and receives, in the best all-reduce of 4 MiB; of a slow group the mean of parts of it.
    int mbytes_per_s = 0;
    /// At which the other node's kernel acknowledged, the median over these messages. Unlike their time it hardly
    /// depends on what else the CPUs of the two nodes do.
    int link_mbytes_per_s = 0;
    bool sees_losses = false;   ///< Whether the kernels of both nodes count lost packets.
    std::int64_t clock_ms = 0;  ///< How far the second rank's wall clock is ahead of the first's.
};

struct PairTerms {
    std::string name;  ///< Unique in the job.
    NodeGroup ranks;
    int number = 0;  ///< Of this rank in `ranks`.
    std::shared_ptr<MeetingPlace> place;
    /// Of this node, the only one to connect by. Then one large message is enough. Empty: all of its addresses.
    std::string address{};
    int lost_permille = 0;  ///< SearchLimits::lost_permille
};

/// The time for connecting and all messages, repeats included. The kernel calls twice in it, and sends a lost segment
/// again several times. A pair by one address has less (pair_test.cpp).
inline constexpr Duration pair_limit = 2500ms;
/// A test that fails in the first half of it is repeated so often, so that chance does not decide.
inline constexpr int pair_tries = 3;
/// The time after pair_limit in which the other rank's result counts: it began later, or it is busy.
inline constexpr Duration partner_slack = 1s;

/// How `why` of a pair begins that did not even connect.
inline constexpr std::string_view no_connection = "no connection";

std::int64_t wall_clock_ms();

/// Both ranks call it at about the same time, and both get the same `passed`. Takes at most pair_limit + partner_slack.
PairResult test_pair(const PairTerms& terms);
/// The same for a larger group, which passed if all of its ranks did. It is not repeated here (group_search.h), and
/// lost packets are no failure: senders that share a receiver's link make some. Takes at most pair_limit.
PairResult test_group(const PairTerms& terms);

}  // namespace muster::runtime
