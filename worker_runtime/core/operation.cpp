#include "muster/operation.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

Operation of(OperationKind kind, DataType type, const void* input, void* output, std::size_t count, int peer = -1,
             ReduceOp reduce = ReduceOp::sum) {
    return {
        .kind = kind, .type = type, .reduce = reduce, .input = input, .output = output, .count = count, .peer = peer};
}

Operation weighted(Operation operation, double weight) {
    operation.weight = weight;
    operation.weighted = true;
    return operation;
}

}  // namespace

std::string_view name(OperationKind kind) {
    return enumerator_name(kind, "operation of an unknown kind");
}

std::string_view name(ReduceOp reduce) {
    return enumerator_name(reduce, "unknown reduction");
}

Operation barrier() {
    return {};
}

Operation all_reduce(Buffer buffer, ReduceOp reduce) {
    return of(OperationKind::all_reduce, buffer.type, buffer.data, buffer.data, buffer.count, -1, reduce);
}

Operation all_reduce_weighted(Buffer buffer, float weight) {
    return weighted(all_reduce(buffer, ReduceOp::avg), static_cast<double>(weight));
}

Operation all_reduce_premul(Buffer buffer, double factor) {
    return weighted(all_reduce(buffer, ReduceOp::premul_sum), factor);
}

Operation reduce_premul(ConstBuffer input, Buffer output, double factor, int root) {
    return weighted(reduce(input, output, ReduceOp::premul_sum, root), factor);
}

Operation reduce_scatter_premul(ConstBuffer input, Buffer output, double factor) {
    return weighted(reduce_scatter(input, output, ReduceOp::premul_sum), factor);
}

Operation reduce_scatter(ConstBuffer input, Buffer output, ReduceOp reduce) {
    return of(OperationKind::reduce_scatter, output.type, input.data, output.data, output.count, -1, reduce);
}

Operation all_gather(ConstBuffer input, Buffer output) {
    return of(OperationKind::all_gather, input.type, input.data, output.data, input.count);
}

Operation broadcast(Buffer buffer, int root) {
    return of(OperationKind::broadcast, buffer.type, buffer.data, buffer.data, buffer.count, root);
}

Operation all_to_all(ConstBuffer input, Buffer output, int world) {
    return of(OperationKind::all_to_all, input.type, input.data, output.data,
              input.count / static_cast<std::size_t>(world));
}

Operation gather(ConstBuffer input, Buffer output, int root) {
    return of(OperationKind::gather, input.type, input.data, output.data, input.count, root);
}

Operation scatter(ConstBuffer input, Buffer output, int root) {
    return of(OperationKind::scatter, output.type, input.data, output.data, output.count, root);
}

Operation reduce(ConstBuffer input, Buffer output, ReduceOp reduction, int root) {
    return of(OperationKind::reduce, input.type, input.data, output.data, input.count, root, reduction);
}

std::vector<Part> parts_in_a_row(std::span<const std::size_t> counts) {
    std::vector<Part> parts;
    std::size_t offset = 0;
    for (const auto count : counts) {
        parts.push_back({count, offset});
        offset += count;
    }
    return parts;
}

Operation all_to_all_uneven(const void* input, void* output, DataType type, Parts parts) {
    return {.kind = OperationKind::all_to_all_uneven,
            .type = type,
            .input = input,
            .output = output,
            .parts = std::make_shared<const Parts>(std::move(parts))};
}

Parts parts_of(const Operation& operation, int rank, int size) {
    if (operation.parts) return *operation.parts;
    const auto ranks = static_cast<std::size_t>(size);
    const auto row = parts_in_a_row(std::vector(ranks, operation.count));
    const Part whole{.count = operation.count};
    Parts parts{.sent = std::vector<Part>(ranks), .expected = std::vector<Part>(ranks)};
    const auto root = static_cast<std::size_t>(std::max(0, operation.peer));
    switch (operation.kind) {
        case OperationKind::all_to_all: return {.sent = row, .expected = row};
        case OperationKind::gather:
            parts.sent[root] = whole;
            if (rank == operation.peer) parts.expected = row;
            return parts;
        case OperationKind::scatter:
            parts.expected[root] = whole;
            if (rank == operation.peer) parts.sent = row;
            return parts;
        default: return parts;
    }
}

Operation send(ConstBuffer buffer, int peer) {
    return of(OperationKind::send, buffer.type, buffer.data, nullptr, buffer.count, peer);
}

Operation receive(Buffer buffer, int peer) {
    return of(OperationKind::receive, buffer.type, nullptr, buffer.data, buffer.count, peer);
}

std::string describe(const Operation& operation) {
    const auto kind = operation.kind;
    if (kind == OperationKind::barrier) return "barrier";
    if (kind == OperationKind::all_to_all_uneven) return cat(name(kind), " ", name(operation.type));
    const bool collects = kind == OperationKind::send || kind == OperationKind::gather || kind == OperationKind::reduce;
    const bool has_peer = is_paired(kind) || has_root(kind);
    return cat(name(kind), reduces(kind) ? cat(" ", name(operation.reduce)) : std::string(), " ", name(operation.type),
               " x ", operation.count, has_peer ? cat(collects ? " to rank " : " from rank ", operation.peer) : "");
}

}  // namespace muster
