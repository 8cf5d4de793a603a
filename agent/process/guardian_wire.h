// The messages between the agent and its guardian: one per datagram, on a seqpacket socket between two copies of one
// program, so there are no versions. Lengths are bounded, so that a bug on one side does not crash the other.
//
//   byte 0    the kind, in the order of the variant below
//   then      the fields, little-endian; text as u32 length + bytes
//
// Descriptors accompany a Spawn in this order: the worker's image (a memfd made by image_bytes(), any size), then
// stdout, then stderr, as the flags say. A stream without a descriptor is the guardian's own. A ForkReserve is
// accompanied by the socket that the new guardian will serve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/supervision/process_host.h"

namespace muster::agent::guardian_wire {

inline constexpr std::size_t datagram_max_bytes = 80 * 1024;  ///< A death notice and its header. Far below SO_SNDBUF.
inline constexpr std::size_t death_notice_max_bytes = 64 * 1024;
inline constexpr std::size_t path_max_bytes = 4096;
inline constexpr std::size_t stuck_max_count = 1024;      ///< Maximum number of pids in one TreeStuck.
inline constexpr std::size_t kept_max_count = 8192;       ///< Far above the workers of a node.
inline constexpr std::size_t image_max_bytes = 16 << 20;  ///< The kernel's own limit is a quarter of the stack limit.
inline constexpr std::size_t fds_max = 3;
inline constexpr int signals_max = 64;
inline constexpr std::uint32_t cpus_max = 1U << 16;  ///< Linux supports 8192 CPUs and 1024 NUMA nodes.

// ---- agent to guardian ----
struct Spawn {
    std::uint64_t id = 0;  ///< Chosen by the agent, never reused. Every answer about this worker has it.
    bool has_stdout = false;
    bool has_stderr = false;
    bool stands_by = false;     ///< A standby process (guardian_standby.cpp): no worker until a Spawn names it.
    std::uint64_t standby = 0;  ///< The standby process that becomes this worker, where it can. 0: none.
};
/// SIGKILL for the standby process of this id. 0: for all.
struct EndStandby {
    std::uint64_t id = 0;
};
/// To every worker's leader.
struct Signal {
    std::int32_t signal = 0;
};
/// From now on Signal, FollowUp and Kill leave these workers alone, and what they have started. It replaces those that
/// were named before.
struct Keep {
    std::vector<std::uint64_t> ids;
};
/// To a worker's process group, or to what an ended one has left in it.
struct SignalGroup {
    std::uint64_t id = 0;
    std::int32_t signal = 0;
};
struct Kill {
    std::uint64_t number = 0;
};
struct Feed {};
struct DeathNotice {
    std::string bytes;
};
/// The agent ends in order: what follows the socket's end is no death.
struct Quit {};
/// "Fork another guardian, the agent's child as you are": it stands by until it is told to Serve.
struct ForkReserve {};
/// "You are the guardian now." The workers' control group is to be made at this path; empty: there is none.
struct Serve {
    std::string cgroup;
};
/// "Should the agent die, remove what of this directory is empty."
struct Folder {
    std::string path;
};
/// After a Signal that stops the workers: their children get it too, by the rule of awaited_children.h.
struct FollowUp {
    std::int32_t signal = 0;
    std::int64_t idle_ns = 0;
    std::int64_t busy_ns = 0;
};

// ---- guardian to agent ----
struct Spawned {
    std::uint64_t id = 0;
    std::int32_t pid = 0;
    bool from_standby = false;  ///< Its standby process became this worker.
};
/// The standby process has imported everything, and waits.
struct StandbyReady {
    std::uint64_t id = 0;
    bool of_own_slot = false;  ///< The imports have read the local rank, so it serves no other one.
};
struct Ended {
    std::uint64_t id = 0;
    std::int32_t pid = 0;
    WorkerEnd end;
    std::int64_t at_ns = 0;  ///< Time on the monotonic clock.
    bool unfed = false;
    bool group_left = false;
    /// On the wire only: the stage of a NotStarted end. Other nodes are told its last 255 bytes, but the agent opens
    /// the file that it may name.
    std::string stage{};
};
struct GroupEmptied {
    std::uint64_t id = 0;
};
/// The answer to the Kill with this number, the newest one.
struct Emptied {
    std::uint64_t number = 0;
};
struct Stuck {
    std::vector<std::int32_t> pids;
};

struct ReserveForked {
    std::int32_t pid = 0;  ///< 0: the fork failed with `error_number`.
    std::int32_t error_number = 0;
};

using Message =
    std::variant<Spawn, Signal, SignalGroup, Kill, Feed, DeathNotice, Quit, ForkReserve, Serve, Spawned, Ended,
                 GroupEmptied, Emptied, Stuck, ReserveForked, Folder, FollowUp, EndStandby, StandbyReady, Keep>;

std::string encode(const Message& message);
/// Empty for anything that encode() cannot have made.
std::optional<Message> decode(std::string_view datagram);

/// A worker's program, environment and place as they travel in the memfd, or empty text if one holds a NUL byte, there
/// is no argv[0], all of it is larger than image_max_bytes, or a CPU or a node has a number that Linux has not.
std::string image_bytes(const WorkerCommand& command);

/// Pointers into `bytes`, as execve wants them: it must outlive them and stay where it is. The masks are as
/// sched_setaffinity and set_mempolicy want them, bit n of the whole is CPU or node n; empty: leave it as it is.
struct Image {
    std::vector<char*> argv;         ///< Ends with a null pointer.
    std::vector<char*> environment;  ///< Ends with a null pointer.
    std::vector<unsigned long> cpu_mask;
    std::vector<unsigned long> node_mask;
    int ignored_signal = 0;  ///< 0: none.
};
std::optional<Image> parse_image(std::string& bytes);

}  // namespace muster::agent::guardian_wire
