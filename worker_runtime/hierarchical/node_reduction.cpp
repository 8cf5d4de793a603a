#include "worker_runtime/hierarchical/node_reduction.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/tcp_slices.h"

namespace muster::runtime {

namespace {

void copy_elements(const Operation& from, const Operation& to) {
    if (from.type == to.type)
        std::memcpy(to.output, from.output, bytes_of(from));
    else
        convert({from.output, from.count, from.type}, {to.output, to.count, to.type});
}

/// The maximum number of elements of a part.
std::size_t part_count_max(DataType type) {
    return by_nodes_chunk_bytes / std::max(muster::size_of(type), sizeof(float));
}

}  // namespace

/// Compares the traffic of a reduce_scatter, and of a reduce, which sends as much in a whole mesh. Flat: a node of
/// k = size / nodes ranks sends (nodes - 1) / nodes of the elements for each of its ranks. By nodes: all elements
/// twice, and 16-bit types as f32.
bool NodeReduction::pays(const Operation& operation) const {
    const int size = groups_.tcp.size();
    const int nodes = groups_.layout.node_count();
    const bool half = !can_chain(operation.type);
    const bool scatters = operation.kind == OperationKind::reduce_scatter;
    // In larger groups a flat reduce is a flat all_reduce.
    if (scatters || (operation.kind == OperationKind::reduce && groups_.lanes.is_whole()))
        return bytes_of(operation) * static_cast<std::size_t>(scatters ? size : 1) >= by_nodes_bytes_min &&
               size * (nodes - 1) > (half ? 4 : 2) * nodes * nodes;
    return bytes_of(operation) >= by_nodes_bytes_min && (!half || size >= by_nodes_half_ranks_min * nodes);
}

Result<void> NodeReduction::all_reduce(const Operation& operation, const RunTerms& terms) {
    const std::size_t element = muster::size_of(operation.type);
    const std::size_t chunk = part_count_max(operation.type);
    // Different operations may have equal parts, so the whole operations are compared first.
    if (operation.count > chunk) MUSTER_TRY(meet(operation, terms));
    for (std::size_t done = 0; done < operation.count; done += chunk) {
        Operation part = operation;
        part.count = std::min(chunk, operation.count - done);
        part.input = part.output = static_cast<std::byte*>(operation.output) + done * element;
        if (auto reduced = reduce_part(part, operation, terms); !reduced) return reduced;
    }
    return {};
}

Result<void> NodeReduction::keep_piece(const Operation& operation, const RunTerms& terms) {
    const std::size_t element = muster::size_of(operation.type);
    const std::size_t chunk = part_count_max(operation.type);
    const bool scatters = operation.kind == OperationKind::reduce_scatter;
    const bool keeps = scatters || operation.peer == groups_.tcp.rank();
    const std::size_t all = operation.count * static_cast<std::size_t>(scatters ? groups_.tcp.size() : 1);
    const std::size_t own = operation.count * static_cast<std::size_t>(scatters ? groups_.tcp.rank() : 0);
    auto* const input = static_cast<std::byte*>(const_cast<void*>(operation.input));
    MUSTER_TRY(meet(operation, terms));
    for (std::size_t done = 0; done < all; done += chunk) {
        Operation part = operation;
        part.count = std::min(chunk, all - done);
        part.output = input + done * element;  // stage() reads the elements here
        MUSTER_TRY(reduce_staged(part, operation, terms));
        const std::size_t begin = std::max(done, own);
        const std::size_t end = std::min(done + part.count, own + operation.count);
        if (begin >= end || !keeps) continue;
        Operation from = part;
        Operation to = operation;
        from.count = to.count = end - begin;
        from.output = static_cast<std::byte*>(part.output) + (begin - done) * muster::size_of(part.type);
        to.output = static_cast<std::byte*>(operation.output) + (begin - own) * element;
        copy_elements(from, to);
    }
    return {};
}

/// Synchronises the ranks of this node and compares their operations.
Result<void> NodeReduction::meet(const Operation& operation, const RunTerms& terms) {
    return groups_.node == nullptr ? Result<void>()
                                   : groups_.fail_tcp_on_error(groups_.node->meet(operation, false, terms));
}

/// Reduces one part. 16-bit types are carried as f32, so that they are rounded once, at the end.
Result<void> NodeReduction::reduce_part(const Operation& part, const Operation& whole, const RunTerms& terms) {
    Operation carried = part;
    MUSTER_TRY(meet(part, terms));
    auto memory = MUSTER_TRY(common_memory(part));
    const bool staged = memory.empty() || !can_chain(part.type);
    if (!staged) return chain_nodes(carried, std::move(memory), whole, terms);
    auto done = reduce_staged(carried, whole, terms);
    if (done) copy_elements(carried, part);
    return done;
}

/// Sums all ranks' `part` in staging memory. Afterwards `part` refers to that memory.
Result<void> NodeReduction::reduce_staged(Operation& part, const Operation& whole, const RunTerms& terms) {
    MUSTER_TRY(groups_.fail_tcp_on_error(stage(part, terms)));
    auto memory = MUSTER_TRY(common_memory(part));
    if (memory.empty())
        return groups_.fail_node_on_error(
            groups_.tcp.fail(Errc::bad_frame, "the ranks of a node disagree where they staged"));
    return chain_nodes(part, std::move(memory), whole, terms);
}

/// Returns the address of `part` on each rank of this node; empty if it is not in shared memory.
Result<std::vector<void*>> NodeReduction::common_memory(const Operation& part) {
    if (groups_.node == nullptr) return std::vector<void*>{part.output};
    auto memory = groups_.node->common_memory(bytes_of(part));
    if (!memory) return groups_.tcp.fail(memory.error().code, memory.error().context);
    return memory;
}

Result<void> NodeReduction::chain_nodes(const Operation& part, std::vector<void*> memory, const Operation& whole,
                                        const RunTerms& terms) {
    const auto place = place_in(part, std::move(memory));
    auto done = groups_.fail_node_on_error(run_chain(groups_.lanes, part, place, whole, terms));
    if (done && groups_.node != nullptr) done = groups_.fail_tcp_on_error(groups_.node->step(terms));
    return done;
}

/// Copies the elements of `operation` to shared staging memory, and makes it refer to that memory.
Result<void> NodeReduction::stage(Operation& operation, const RunTerms& terms) {
    const Operation given = operation;
    if (!can_chain(operation.type)) operation.type = DataType::f32;
    const std::size_t bytes = bytes_of(operation);
    if (groups_.node == nullptr) {
        if (own_staging_.size() < bytes) own_staging_.resize(bytes);
        operation.output = own_staging_.data();
    } else {
        if (staging_.size_bytes() < bytes) {
            staging_ = MUSTER_TRY(groups_.node->allocate(std::bit_ceil(bytes), terms));
        }
        operation.output = staging_.data();
    }
    operation.input = operation.output;
    copy_elements(given, operation);
    return groups_.node != nullptr ? groups_.node->meet(operation, false, terms) : Result<void>();
}

/// Returns this rank's slice of every rank's memory on this node; no slice if the node has ranks to spare.
ChainPlace NodeReduction::place_in(const Operation& operation, std::vector<void*> memory) const {
    const int first = groups_.layout.first_of(groups_.number);
    const int number = groups_.tcp.rank() - first;
    const int slices = groups_.layout.smallest();
    ChainPlace place{.memory = std::move(memory), .first_rank = first, .own = static_cast<std::size_t>(number)};
    if (number >= slices) return place;
    const Slices cut(operation.count, muster::size_of(operation.type), slices);
    const std::size_t begin = cut.begin_bytes(number);
    place.bytes = cut.begin_bytes(number + 1) - begin;
    for (auto& one : place.memory) one = static_cast<std::byte*>(one) + begin;
    if (groups_.number > 0) place.previous = groups_.layout.first_of(groups_.number - 1) + number;
    if (groups_.number + 1 < groups_.layout.node_count())
        place.next = groups_.layout.first_of(groups_.number + 1) + number;
    return place;
}

}  // namespace muster::runtime
