// The header of an operation between two ranks: 64 bytes before its data on the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "muster/operation.h"

namespace muster::runtime {

using HeaderBytes = std::array<std::byte, 64>;

struct CollectiveHeader {
    enum Flags : std::uint8_t {
        none = 0,
        allocates = 1,  ///< A barrier for a memory allocation of `count` bytes.
        lacks = 2,      ///< The same, and this rank lacks the memory.
        chained = 4,    ///< An all_reduce that passes through the ranks (tcp/tcp_chain).
        continues = 8,  ///< A further part of an operation (tcp/tcp_steps).
        weighs = 16,    ///< Ranks exchange the weights of an average or a premul_sum before it.
    };

    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    std::uint8_t flags = none;
    std::int32_t peer = -1;
    std::uint32_t tag = 0;
    double weight = 1;
    std::uint64_t count = 0;
    std::uint64_t number = 0;  ///< Number of the operation, from 1; for send and receive, of the message.
};

/// Of `operation.count` elements.
[[nodiscard]] inline std::size_t bytes_of(const Operation& operation) {
    return operation.count * size_of(operation.type);
}

/// Returns an operation's memory for the wire, whose types serve both directions. Memory that is only sent is not
/// written.
[[nodiscard]] inline std::byte* memory_at(const void* data) {
    return static_cast<std::byte*>(const_cast<void*>(data));
}

CollectiveHeader header_of(const Operation& operation, std::uint64_t number);

HeaderBytes encode(const CollectiveHeader& header);
/// False for bytes that no rank of this version sends.
[[nodiscard]] bool decode(const HeaderBytes& bytes, CollectiveHeader& header);

/// Do both ranks of a collective mean the same? Weights may differ.
bool agree(const CollectiveHeader& a, const CollectiveHeader& b);

/// "all_reduce sum f32 x 1024 tagged 7".
std::string describe(const CollectiveHeader& header);

}  // namespace muster::runtime
