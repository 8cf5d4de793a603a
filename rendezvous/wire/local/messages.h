// The messages between an agent and one of its workers, as plain structs.
//
// Each worker has a Unix seqpacket socket at the address in MUSTER_AGENT_SOCKET. One datagram is one message. The
// channel is optional: a worker may never connect, send nothing, or disconnect at any time. Neither side waits for the
// other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace muster::local {

/// 2 adds CanKeep, Held, Hold and Resumed; 3 adds Steps. A Hello of version 1 may end before its token, which was added
/// to it without a new number; from 2 on each new field of a message comes with a new version.
inline constexpr std::uint32_t protocol_version = 3;

// ---- worker -> agent ----

/// The worker's first message. Who says nothing, or anything else but AskRanksKey first, is no worker.
struct Hello {
    std::uint32_t version = protocol_version;
    std::int32_t pid = 0;
    std::string runtime;  ///< The sender, for messages: "muster 0.1.0".
    std::string token;    ///< MUSTER_AGENT_TOKEN. Without the right one the agent closes the connection.
    friend bool operator==(const Hello&, const Hello&) = default;
};

/// A training step is done.
struct Progress {
    std::int64_t step = 0;
    friend bool operator==(const Progress&, const Progress&) = default;
};

/// What the worker is doing from now on ("evaluation", "checkpoint"); empty: nothing that has a name.
struct Section {
    std::string name;
    std::uint64_t limit_ms = 0;  ///< A longer section is reported. 0: no limit.
    friend bool operator==(const Section&, const Section&) = default;
};

/// "I live", when there was nothing else to say.
struct Heartbeat {
    friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// What is handed over with a Give.
enum class HandoverKind : std::uint8_t {
    snapshot = 0,       ///< A checkpoint in memory, which the agent persists if the worker dies.
    flight_record = 1,  ///< The last operations, for explaining a hang.
    copy = 2,           ///< The snapshot of a rank on another node, in case that node is lost.
};

/// The agent is to keep this memory beyond the worker's end. The datagram carries exactly one descriptor, a memfd of
/// at least `size_bytes`; a later flight record replaces it, and of snapshots, and of copies of each rank, the newest
/// two are kept: ranks that die are one apart.
struct Give {
    HandoverKind kind = HandoverKind::snapshot;
    std::uint64_t size_bytes = 0;
    std::int64_t step = -1;   ///< Step of a snapshot or a copy.
    std::int32_t rank = -1;   ///< Rank that a copy belongs to.
    std::string directory{};  ///< Absolute path where muster-persist writes a snapshot. Empty: none.
    friend bool operator==(const Give&, const Give&) = default;
};

/// Asks for RanksKey, also on a connection beside the worker's: its child may be the program that needs the key.
struct AskRanksKey {
    std::string token;  ///< MUSTER_AGENT_TOKEN. Without the right one the agent closes the connection.
    friend bool operator==(const AskRanksKey&, const AskRanksKey&) = default;
};

/// Whether this worker can leave its round in place from now on: its program has a place to which a failed step
/// returns.
struct CanKeep {
    bool can = false;
    friend bool operator==(const CanKeep&, const CanKeep&) = default;
};

/// The answer to Hold: no communicator, connection, lock, write or thread of the round is left in this process.
struct Held {
    friend bool operator==(const Held&, const Held&) = default;
};

/// The datagram carries exactly one descriptor, a memfd with the worker's step record
/// (worker_runtime/core/step_record.h), which the worker goes on writing to. A later one replaces it.
struct Steps {
    friend bool operator==(const Steps&, const Steps&) = default;
};

// ---- agent -> worker ----

/// What a worker in this one's place gave before it ended, snapshots and copies. The datagram carries exactly one
/// descriptor, as a Give's. Comes right after Hello, where MUSTER_SNAPSHOTS announces it.
struct Offer {
    HandoverKind kind = HandoverKind::snapshot;
    std::uint64_t size_bytes = 0;
    friend bool operator==(const Offer&, const Offer&) = default;
};

/// What the workers of this round share, and nobody else: they prove with it that they are ranks. The answer to
/// AskRanksKey, where MUSTER_RANKS_SECURITY announces it.
struct RanksKey {
    std::string key;  ///< 32 bytes.
    friend bool operator==(const RanksKey&, const RanksKey&) = default;
};

/// The round is over; a stop signal follows. Leave at once, and do not save together with peers that may be dead.
struct RoundEnded {
    std::string why;
    friend bool operator==(const RoundEnded&, const RoundEnded&) = default;
};

/// In the place of RoundEnded, to a worker that can be kept: the round is over, and no stop signal follows. Leave the
/// round, answer Held, and wait for Resumed. A RoundEnded instead says that no round follows here.
struct Hold {
    std::uint64_t limit_ms = 0;  ///< The agent kills a worker that is not held by then.
    std::string why;
    friend bool operator==(const Hold&, const Hold&) = default;
};

/// A held worker enters the next round: it sets these variables of its environment, "NAME=value", and unsets those
/// without a "=". Its new channel is among them, and the agent closes this one.
struct Resumed {
    std::vector<std::string> variables;
    friend bool operator==(const Resumed&, const Resumed&) = default;
};

/// The job will be stopped soon (preemption). Save after `step`, which is the same for all workers, then leave.
struct Notice {
    std::int64_t step = -1;  ///< -1: the next possible step.
    std::string why;
    friend bool operator==(const Notice&, const Notice&) = default;
};

using Message = std::variant<Hello, Progress, Section, Heartbeat, Give, AskRanksKey, CanKeep, Held, Steps, Offer,
                             RanksKey, RoundEnded, Notice, Hold, Resumed>;

}  // namespace muster::local
