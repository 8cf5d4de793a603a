#include "worker_runtime/tcp/tcp_steps.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "rendezvous/base/check.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_chain.h"
#include "worker_runtime/tcp/tcp_circle.h"
#include "worker_runtime/tcp/tcp_collectives.h"
#include "worker_runtime/tcp/tcp_slices.h"
#include "worker_runtime/tcp/tcp_summation.h"

namespace muster::runtime {

namespace {

/// Part of an operation, as ranks compare it: the first, or one more of it.
CollectiveHeader header_of_part(const Operation& operation, bool first) {
    auto header = header_of(operation, 0);
    if (!first) header.flags |= CollectiveHeader::continues;
    return header;
}

/// So many bytes of each rank's piece are exchanged at a time: whole cache lines.
std::size_t slot_bytes_max(const TcpLanes& lanes) {
    return std::max<std::size_t>(64, exchange_bytes_max / static_cast<std::size_t>(lanes.size()) / 64 * 64);
}

/// Where each rank's piece begins among pieces of one size, and where the last one ends.
std::vector<std::size_t> begins_of_pieces(const TcpLanes& lanes, std::size_t bytes) {
    std::vector<std::size_t> begins(static_cast<std::size_t>(lanes.size()) + 1);
    for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = i * bytes;
    return begins;
}

Result<void> gather_all(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    return gather_round(lanes, circle_of_all(lanes), memory_at(operation.output),
                        begins_of_pieces(lanes, bytes_of(operation)), operation.input, header_of_part(operation, true),
                        terms);
}

/// All pieces are of one size. `run` gets where a part of them begins in each, its size, and the header of the part's
/// round.
Result<void> in_parts(const TcpLanes& lanes, const Operation& operation, const auto& run) {
    const std::size_t bytes = bytes_of(operation);
    std::size_t begin = 0;
    do {
        const std::size_t part = std::min(slot_bytes_max(lanes), bytes - begin);
        if (auto done = run(begin, part, header_of_part(operation, begin == 0)); !done) return done;
        begin += part;
    } while (begin < bytes);
    return {};
}

/// `take` gets, for a part of each piece, what came from all ranks; where the part begins in a piece, and its size.
Result<void> exchange_pieces(TcpLanes& lanes, const Operation& operation, const RunTerms& terms, const auto& take) {
    return in_parts(lanes, operation, [&](std::size_t begin, std::size_t part, const CollectiveHeader& header) {
        const SlotExchange slots{.slot_bytes = part,
                                 .fill =
                                     [&](int rank, std::byte* slot) {
                                         const auto piece = static_cast<std::size_t>(rank) * bytes_of(operation);
                                         if (part > 0)
                                             std::memcpy(slot, memory_at(operation.input) + piece + begin, part);
                                     },
                                 .take = [&](const std::vector<const void*>& from) { take(from, begin, part); }};
        return exchange_round(lanes, slots, header, terms);
    });
}

Result<void> exchange_all(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    const std::size_t bytes = bytes_of(operation);
    return exchange_pieces(lanes, operation, terms, [&](const auto& from, std::size_t begin, std::size_t part) {
        auto* to = memory_at(operation.output) + begin;
        for (std::size_t rank = 0; part > 0 && rank < from.size(); ++rank, to += bytes)
            std::memcpy(to, from[rank], part);
    });
}

/// gather: everybody gets all pieces, a part of them at a time, and only the root keeps them. scatter: the root's go to
/// everybody likewise, and each rank keeps its own.
Result<void> move_pieces(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    const std::size_t bytes = bytes_of(operation);
    const auto size = static_cast<std::size_t>(lanes.size());
    const auto own = static_cast<std::size_t>(lanes.rank());
    const bool gathers = operation.kind == OperationKind::gather;
    const bool is_root = lanes.rank() == operation.peer;
    const auto circle = circle_of_all(lanes);
    return in_parts(lanes, operation, [&](std::size_t begin, std::size_t part, const CollectiveHeader& header) {
        auto* const all = lanes.scratch(size * part);
        /// The root copies each rank's part between its own memory and that of the round.
        const auto each = [&](const auto& copy) {
            for (std::size_t rank = 0; is_root && part > 0 && rank < size; ++rank)
                copy(rank * bytes + begin, all + rank * part);
        };
        if (gathers) {
            const auto* const piece = part > 0 ? memory_at(operation.input) + begin : nullptr;
            auto done = gather_round(lanes, circle, all, begins_of_pieces(lanes, part), piece, header, terms);
            if (done)
                each([&](std::size_t at, auto* from) { std::memcpy(memory_at(operation.output) + at, from, part); });
            return done;
        }
        each([&](std::size_t at, auto* to) { std::memcpy(to, memory_at(operation.input) + at, part); });
        auto done = broadcast_round(lanes, circle, operation.peer, all, size * part, header, terms);
        if (done && part > 0) std::memcpy(memory_at(operation.output) + begin, all + own * part, part);
        return done;
    });
}

Result<void> exchange_uneven(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    PartsTable table(operation, lanes.rank(), lanes.size());
    const Operation rows = table.exchange();
    if (auto known =
            gather_round(lanes, circle_of_all(lanes), memory_at(rows.output),
                         begins_of_pieces(lanes, table.row_bytes()), nullptr, header_of_part(operation, true), terms);
        !known)
        return known;
    if (auto good = check_table(lanes, table); !good) return good;
    const std::size_t element = size_of(operation.type);
    const std::size_t largest = table.largest() * element;
    const Parts& parts = *operation.parts;
    const auto own = static_cast<std::size_t>(lanes.rank());
    if (const Part& kept = parts.sent[own]; kept.count > 0)
        std::memcpy(memory_at(operation.output) + parts.expected[own].offset * element,
                    memory_at(operation.input) + kept.offset * element, kept.count * element);
    for (std::size_t begin = 0; begin < largest;) {
        const std::size_t slot_bytes = std::min(slot_bytes_max(lanes), largest - begin);
        /// Where this part of the exchange lies in a buffer, and its size.
        const auto slice = [&](const void* base, const std::vector<Part>& all, std::size_t rank) {
            const Part& part = all[rank];
            const std::size_t bytes = part.count * element;
            if (rank == own || bytes <= begin) return std::span<std::byte>();
            return std::span(memory_at(base) + part.offset * element + begin, std::min(slot_bytes, bytes - begin));
        };
        const SlotExchange slots{.slot_bytes = slot_bytes,
                                 .fill =
                                     [&](int rank, std::byte* slot) {
                                         std::ranges::copy(
                                             slice(operation.input, parts.sent, static_cast<std::size_t>(rank)), slot);
                                     },
                                 .take =
                                     [&](const std::vector<const void*>& from) {
                                         for (std::size_t rank = 0; rank < from.size(); ++rank) {
                                             const auto to = slice(operation.output, parts.expected, rank);
                                             if (!to.empty()) std::memcpy(to.data(), from[rank], to.size());
                                         }
                                     }};
        if (auto done = exchange_round(lanes, slots, header_of_part(operation, false), terms); !done) return done;
        begin += slot_bytes;
    }
    return {};
}

Result<void> reduce_pieces(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    TcpSummation summation(operation);
    summation.receive_weights(lanes);
    return exchange_pieces(lanes, operation, terms, [&](const auto& from, std::size_t begin, std::size_t part) {
        summation.sum(from, memory_at(operation.output) + begin, part);
    });
}

Result<void> reduce_small(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    const std::size_t bytes = bytes_of(operation);
    const std::size_t stride = (bytes + 63) / 64 * 64;
    const auto size = static_cast<std::size_t>(lanes.size());
    auto* const all = lanes.scratch(size * stride);
    const auto begins = begins_of_pieces(lanes, stride);
    std::vector<const void*> inputs;
    for (std::size_t i = 0; i < size; ++i) inputs.push_back(all + begins[i]);
    if (bytes > 0) std::memcpy(all + static_cast<std::size_t>(lanes.rank()) * stride, operation.output, bytes);
    const auto circle = circle_of_all(lanes);
    if (auto done = gather_round(lanes, circle, all, begins, nullptr, header_of_part(operation, true), terms); !done)
        return done;
    TcpSummation summation(operation);
    summation.receive_weights(lanes);
    summation.sum(inputs, memory_at(operation.output), bytes);
    return {};
}

/// Every rank gets its slice of all ranks, sums it, and has the sums of the others' slices gathered.
Result<void> reduce_slices(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    const std::size_t element = size_of(operation.type);
    const auto circle = circle_of_all(lanes);
    TcpSummation summation(operation);
    summation.receive_weights(lanes);
    for (std::size_t done = 0; done < operation.count;) {
        const std::size_t count = std::min(operation.count - done, exchange_bytes_max / element);
        auto* const data = memory_at(operation.output) + done * element;
        const Slices slices(count, element, lanes.size());
        const Cut own = slices.cut(lanes.rank(), data);
        const SlotExchange slots{.slot_bytes = slices.cut(0, data).size_bytes,
                                 .fill =
                                     [&](int rank, std::byte* slot) {
                                         const Cut slice = slices.cut(rank, data);
                                         if (slice.size_bytes > 0) std::memcpy(slot, slice.base, slice.size_bytes);
                                     },
                                 .take =
                                     [&](const std::vector<const void*>& from) {
                                         if (own.size_bytes > 0) summation.sum(from, own.base, own.size_bytes);
                                     }};
        const auto header = header_of_part(operation, done == 0);
        if (auto exchanged = exchange_round(lanes, slots, header, terms); !exchanged) return exchanged;
        std::vector<std::size_t> begins;
        for (int rank = 0; rank <= lanes.size(); ++rank) begins.push_back(slices.begin_bytes(rank));
        const auto next = header_of_part(operation, false);
        if (auto gathered = gather_round(lanes, circle, data, begins, nullptr, next, terms); !gathered) return gathered;
        done += count;
    }
    return {};
}

/// 16-bit types travel as f32, so that they are rounded once.
Result<void> reduce_in_chain(TcpLanes& lanes, const Operation& operation, const RunTerms& terms) {
    if (can_chain(operation.type)) return run_chain(lanes, operation, own_place(lanes, operation), operation, terms);
    const std::size_t chunk = by_nodes_chunk_bytes / sizeof(float);
    std::vector<float> wide(std::min(chunk, operation.count));
    for (std::size_t done = 0; done < operation.count; done += chunk) {
        auto* const data = memory_at(operation.output) + done * size_of(operation.type);
        Operation part = operation;
        part.count = std::min(chunk, operation.count - done);
        part.type = DataType::f32;
        part.input = part.output = wide.data();
        convert({data, part.count, operation.type}, {wide.data(), part.count, part.type});
        if (auto sums = run_chain(lanes, part, own_place(lanes, part), operation, terms); !sums) return sums;
        convert({wide.data(), part.count, part.type}, {data, part.count, operation.type});
    }
    return {};
}

Result<void> reduce_all(TcpLanes& lanes, const Operation& operation, TcpAlgorithm algorithm, const RunTerms& terms) {
    const std::size_t bytes = bytes_of(operation);
    const auto size = static_cast<std::size_t>(lanes.size());
    const bool is_large = bytes >= size * ring_bytes_per_rank_min && algorithm == TcpAlgorithm::automatic;
    if (is_large || (bytes > 0 && algorithm == TcpAlgorithm::ring)) return reduce_in_chain(lanes, operation, terms);
    if (auto known = learn_weights(lanes, operation, header_of(operation, 0), terms); !known) return known;
    return bytes * size <= gathered_reduce_bytes_max ? reduce_small(lanes, operation, terms)
                                                     : reduce_slices(lanes, operation, terms);
}

/// All ranks get the result, in memory that is not the caller's, and only the root keeps it.
Result<void> reduce_to_root(TcpLanes& lanes, const Operation& operation, TcpAlgorithm algorithm,
                            const RunTerms& terms) {
    const std::size_t bytes = bytes_of(operation);
    const bool is_root = lanes.rank() == operation.peer;
    std::vector<std::byte> copy(is_root ? 0 : bytes);
    Operation everywhere = operation;
    if (!is_root) everywhere.output = copy.data();
    if (bytes > 0 && everywhere.output != operation.input) std::memcpy(everywhere.output, operation.input, bytes);
    everywhere.input = everywhere.output;
    return reduce_all(lanes, everywhere, algorithm, terms);
}

}  // namespace

Result<void> run_in_steps(TcpLanes& lanes, const Operation& operation, TcpAlgorithm algorithm, const RunTerms& terms) {
    const auto header = header_of(operation, 0);
    switch (operation.kind) {
        case OperationKind::barrier: {
            const auto met = least_of_all(lanes, header, std::numeric_limits<int>::max(), terms);
            return met ? Result<void>() : met.error();
        }
        case OperationKind::all_gather: return gather_all(lanes, operation, terms);
        case OperationKind::all_to_all: return exchange_all(lanes, operation, terms);
        case OperationKind::gather:
        case OperationKind::scatter: return move_pieces(lanes, operation, terms);
        case OperationKind::all_to_all_uneven: return exchange_uneven(lanes, operation, terms);
        case OperationKind::reduce: return reduce_to_root(lanes, operation, algorithm, terms);
        case OperationKind::broadcast:
            return broadcast_round(lanes, circle_of_all(lanes), operation.peer, memory_at(operation.output),
                                   bytes_of(operation), header, terms);
        case OperationKind::all_reduce: return reduce_all(lanes, operation, algorithm, terms);
        case OperationKind::reduce_scatter:
            if (auto known = learn_weights(lanes, operation, header, terms); !known) return known;
            return reduce_pieces(lanes, operation, terms);
        case OperationKind::send:
        case OperationKind::receive: break;
    }
    MUSTER_CHECK(false, name(operation.kind));
    return {};
}

}  // namespace muster::runtime
