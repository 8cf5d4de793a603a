// What lies in the memory that the ranks of one host share.
//
//   rank 0's segment:  GroupHeader | RankLine x size | ChannelLine x size x size | channel slots | rank 0's windows
//   the others':       windows
//
// All of it starts as zeroes. Channel (from, to) carries send and receive; its slots are written by `from`.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "muster/operation.h"
#include "worker_runtime/shared_memory/step_word.h"

namespace muster::runtime {

/// Ranks of different formats use TCP. One more whenever anything changes that two ranks must agree on: this layout,
/// the steps of a collective or of a message, the meeting's datagrams.
inline constexpr std::uint32_t shared_memory_format = 1;

/// What a rank is about to do, for its peers to compare before data moves. A peer copies it once, and checks the copy.
struct Signature {
    std::uint64_t count = 0;
    std::uint64_t offset = 0;  ///< of the data in its region
    double weight = 1;
    std::uint32_t region = 0;  ///< 1-based; 0: memory of the caller's own
    std::uint32_t tag = 0;
    std::int32_t peer = -1;
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    std::uint8_t copied = 0;  ///< 1: the data is in the window already
};

/// Lines of two ranks never share a cache line, nor the pair that the processor fetches together.
struct alignas(128) RankLine {
    StepWord step;
    Signature signatures[2];  ///< by the parity of the operation: a peer may still compare the last one
};

/// The first failure of the group, written by whoever found it.
struct FailureRecord {
    enum : std::uint32_t { none = 0, being_written = 1, written = 2 };
    std::atomic<std::uint32_t> state = none;
    std::uint32_t code = 0;  ///< of Errc
    char text[1000] = {};
};

struct alignas(128) GroupHeader {
    FailureRecord failure;
};

struct alignas(128) ChannelLine {
    StepWord filled;  ///< slots that the sender has filled
    alignas(64) StepWord emptied;
};

/// The head of a slot's bytes.
struct SlotHead {
    std::uint64_t message_bytes = 0;  ///< of the whole message, in its first slot
    std::uint64_t message_count = 0;
    std::uint32_t slot_bytes = 0;  ///< payload here
    std::uint32_t tag = 0;
    DataType type = DataType::u8;
};

inline constexpr int channel_slot_count = 4;
/// A rank's window is cut in two halves, used in turn. Larger ones save steps, smaller ones stay in the cache.
inline constexpr std::size_t window_bytes = 1u << 20;

/// Payload and head of one channel slot: about 4 MiB in all for few ranks, and never less than 256 bytes.
constexpr std::size_t channel_slot_bytes(int size) {
    const auto pairs = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
    return std::clamp<std::size_t>((std::size_t{4} << 20) / (channel_slot_count * pairs) / 64 * 64, 256, 64u << 10);
}

struct SharedLayout {
    std::size_t lines = 0;
    std::size_t channels = 0;
    std::size_t slots = 0;
    std::size_t windows = 0;  ///< in rank 0's segment; at 0 in the others'
    std::size_t leader_bytes = 0;
    std::size_t follower_bytes = 2 * window_bytes;

    explicit constexpr SharedLayout(int size) {
        const auto ranks = static_cast<std::size_t>(size);
        lines = sizeof(GroupHeader);
        channels = lines + ranks * sizeof(RankLine);
        slots = channels + ranks * ranks * sizeof(ChannelLine);
        const auto end = slots + ranks * ranks * channel_slot_count * channel_slot_bytes(size);
        windows = (end + 4095) / 4096 * 4096;
        leader_bytes = windows + 2 * window_bytes;
    }
};

}  // namespace muster::runtime
