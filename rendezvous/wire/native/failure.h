// The facts about a failed worker or node: the same on the wire, in the daemon's verdict and in every launcher's
// report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/ids.h"
#include "rendezvous/wire/native/failure_cause.h"
#include "rendezvous/wire/native/worker_activity.h"
#include "rendezvous/wire/native/worker_end.h"

namespace muster {

/// What kind of thing went wrong, in the order of blame: within the error of the clocks the smaller one is the cause
/// and the larger ones are its victims.
enum class FailureKind : std::uint8_t {
    node_lost = 0,            ///< An agent died or sent nothing for a lease.
    killed = 1,               ///< A signal, out of memory, or never started.
    worker_error = 2,         ///< The worker's own exit code or exception.
    communication_error = 3,  ///< The worker ended because a peer was lost (a table of known messages).
};

/// "worker_error".
std::string_view name(FailureKind kind);

struct Failure {
    FailureKind kind = FailureKind::worker_error;
    std::string host;
    std::string role;
    std::int32_t group_rank = -1;
    std::int32_t rank = -1;        ///< -1: a node.
    std::int32_t local_rank = -1;  ///< -1: a node.
    std::int32_t pid = 0;
    WorkerEnd end;                    ///< Not set for node_lost.
    std::string message;              ///< Message of the error file, or the facts about a node's loss.
    std::string stderr_tail;          ///< Last lines of stderr, at most 64 KiB.
    std::string error_file;           ///< Path on `host`. Empty: the worker wrote none.
    std::string log_directory;        ///< Path on `host`. Empty: none.
    std::int64_t at_ns = 0;           ///< Time on the daemon's monotonic clock (in an agent: its host's). 0: unknown.
    std::int64_t uncertainty_ns = 0;  ///< Error of `at_ns`: RTT/2 of the ping that set the offset.
    std::int64_t wall_time_s = 0;     ///< seconds since 1970 on `host`'s own clock; for people only
    FailureCause cause;               ///< what its agent found out right after the end
    bool early = false;               ///< a restart only repeats it: a mistake before its first step, or (disk_full)
                                      ///< a checkpoint for which the disk has no room

    friend bool operator==(const Failure&, const Failure&) = default;
};

/// Failures of one round that say the same, in all but numbers.
struct FailureGroup {
    FailureKind kind = FailureKind::worker_error;
    std::string error;        ///< one line, as one of them has it
    std::string ranks;        ///< "0-7,12"; empty for nodes
    std::uint32_t count = 0;  ///< workers or nodes

    friend bool operator==(const FailureGroup&, const FailureGroup&) = default;
};

/// The daemon's judgement of one round's end, the same on every node.
struct Verdict {
    Round round = no_round;
    std::optional<Failure> first;           ///< the first cause; empty when nothing failed
    std::uint32_t other_failure_count = 0;  ///< workers and nodes that failed beside it
    std::uint32_t stopped_count = 0;        ///< workers that muster itself stopped because of it
    std::vector<FailureGroup> groups;       ///< all that failed, `first` in the first group; at most groups_max of them
    std::vector<ActivityGroup> activities{};  ///< of workers that did nothing at its end; the missing first
    friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace muster
