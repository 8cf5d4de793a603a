// The daemon's GET /status as values. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::launcher {

/// A rank that waits in an operation, or for which others wait.
struct StatusRank {
    std::int64_t rank = -1;
    bool is_overdue = false;  ///< False: it waits.
    std::int64_t idle_ms = 0;
    std::string operation;
    std::string place;
    friend bool operator==(const StatusRank&, const StatusRank&) = default;
};

struct StatusGpu {
    std::int64_t index = 0;
    std::int64_t busy_percent = 0;
    friend bool operator==(const StatusGpu&, const StatusGpu&) = default;
};

struct StatusNode {
    std::string host;
    std::int64_t pid = 0;
    std::string place;
    std::int64_t slots = 0;
    std::int64_t group_rank = -1;
    std::int64_t rank_base = -1;
    std::int64_t silent_ms = 0;
    bool is_connected = true;
    bool is_left_out = false;
    std::int64_t standby_count = 0;  ///< Standby processes (--warm-workers).
    std::int64_t standby_bytes = 0;  ///< Their memory.
    std::vector<StatusGpu> gpus{};   ///< Those of which it is known (--gpu-use).
    std::vector<StatusRank> ranks;
    friend bool operator==(const StatusNode&, const StatusNode&) = default;
};

/// The newest checkpoint of a tier: memory, neighbour, local, shared.
struct StatusCheckpoint {
    std::string tier;
    std::int64_t step = -1;
    std::int64_t age_s = -1;  ///< -1: unknown.
    friend bool operator==(const StatusCheckpoint&, const StatusCheckpoint&) = default;
};

struct StatusJob {
    std::string id;
    std::string phase;
    std::string waiting_for;
    std::string goodput;
    std::int64_t round = -1;
    std::int64_t restarts_used = 0;
    std::int64_t restarts_max = 0;
    /// Of these; with a window, fewer may be used than there were. -1: the daemon does not report it.
    std::int64_t restarts_left = -1;
    std::int64_t nodes_min = 0;
    std::int64_t nodes_max = 0;
    std::int64_t step = -1;
    double samples_per_second = 0;  ///< 0: unknown.
    std::int64_t checkpoint_step = -1;
    std::vector<StatusCheckpoint> checkpoints{};
    std::vector<StatusNode> nodes;
    friend bool operator==(const StatusJob&, const StatusJob&) = default;
};

struct StatusFacts {
    std::vector<StatusJob> jobs;
    std::string leader;  ///< Of a daemon that stands by. Empty: it leads, or knows no leader.
    bool stands_by = false;
    std::string trouble;  ///< Why the daemon cannot write its state. Empty: it can.
    friend bool operator==(const StatusFacts&, const StatusFacts&) = default;
};

}  // namespace muster::launcher
