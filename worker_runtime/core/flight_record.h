// The flight record: the last operations of each rank's communicators, in memory that outlives the worker. It shows
// which rank is missing from which collective without the worker's cooperation.
//
// A ring is one file or memfd for each rank: a FlightHeader, then `entry_count` FlightEntries, entry k of the record at
// index k % entry_count. The writer fills an entry and then raises `next`. In a running process a reader may read a
// half-written entry, so the report uses only what several ranks agree on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/operation.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

inline constexpr std::array<char, 8> flight_magic{'M', 'U', 'S', 'T', 'E', 'R', 'F', '2'};
inline constexpr std::uint32_t flight_entry_count = 4096;
inline constexpr std::size_t flight_group_count_max = 32;
inline constexpr std::size_t flight_name_bytes = 48;

enum class FlightState : std::uint8_t {
    started = 1,  ///< the rank is in it, perhaps waiting for others
    done = 2,
    failed = 3,
};

/// One operation of one rank. Times are of the host's monotonic clock.
struct FlightEntry {
    std::uint64_t number = 0;  ///< within its group, or within its pair and direction for send and receive; from 1
    std::uint64_t count = 0;   ///< elements; of a barrier: bytes of memory that are taken with it
    std::int64_t started_ns = 0;
    std::int64_t ended_ns = 0;
    std::uint32_t group = 0;  ///< index into the header's names
    std::uint32_t tag = 0;
    std::int32_t peer = -1;
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    FlightState state = FlightState::started;
    std::uint8_t unused[16] = {};
};
static_assert(sizeof(FlightEntry) == 64);

/// Communicator::allocate(), a collective too.
[[nodiscard]] inline bool takes_memory(const FlightEntry& entry) {
    return entry.kind == OperationKind::barrier && entry.count > 0;
}

struct FlightHeader {
    std::array<char, 8> magic = flight_magic;
    std::uint32_t entry_count = flight_entry_count;
    std::int32_t rank = 0;
    std::int32_t world = 1;
    std::int32_t pid = 0;
    std::int64_t round = 0;
    std::int64_t wall_minus_monotonic_ns = 0;
    std::uint64_t next = 0;  ///< entries ever begun
    std::uint32_t group_count = 0;
    std::uint32_t last_is_shared = 0;  ///< 1: the last name also stands for all communicators made after it
    char host[64] = {};
    char boot_id[40] = {};   ///< Boot id of the host. If it differs, `pid` is another process.
    char failure[512] = {};  ///< the first one of this rank, in words
    char groups[flight_group_count_max][flight_name_bytes] = {};
    std::int32_t group_ranks[flight_group_count_max] = {};  ///< this rank's number in the group
    std::int32_t group_sizes[flight_group_count_max] = {};
};

inline constexpr std::size_t flight_ring_bytes = sizeof(FlightHeader) + flight_entry_count * sizeof(FlightEntry);

/// A ring as it was read.
struct FlightRing {
    FlightHeader header;
    std::vector<FlightEntry> entries;  ///< oldest first
};

/// invalid_argument says what is wrong with the bytes.
Result<FlightRing> read_flight_ring(std::string_view bytes);

/// For people: for each group, who is missing from which operation and since when the others wait; ranks that disagree
/// about an operation; ranks whose ring is not there; failures in words. Rings of several rounds: only the newest
/// counts.
std::string flight_report(const std::vector<FlightRing>& rings);

}  // namespace muster::runtime
