#include "muster/operation.h"

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

Operation weighted(Operation operation, double weight) {
    operation.weight = weight;
    operation.weighted = true;
    return operation;
}

}  // namespace

std::string_view name(OperationKind kind) {
    switch (kind) {
        case OperationKind::barrier: return "barrier";
        case OperationKind::all_reduce: return "all_reduce";
        case OperationKind::reduce_scatter: return "reduce_scatter";
        case OperationKind::all_gather: return "all_gather";
        case OperationKind::broadcast: return "broadcast";
        case OperationKind::all_to_all: return "all_to_all";
        case OperationKind::send: return "send";
        case OperationKind::receive: return "receive";
    }
    return "operation of an unknown kind";
}

std::string_view name(ReduceOp reduce) {
    switch (reduce) {
        case ReduceOp::sum: return "sum";
        case ReduceOp::avg: return "avg";
        case ReduceOp::min: return "min";
        case ReduceOp::max: return "max";
        case ReduceOp::product: return "product";
        case ReduceOp::band: return "band";
        case ReduceOp::bor: return "bor";
        case ReduceOp::bxor: return "bxor";
        case ReduceOp::premul_sum: return "premul_sum";
    }
    return "unknown reduction";
}

Operation barrier() {
    return {};
}

Operation all_reduce(Buffer buffer, ReduceOp reduce) {
    return {.kind = OperationKind::all_reduce,
            .type = buffer.type,
            .reduce = reduce,
            .input = buffer.data,
            .output = buffer.data,
            .count = buffer.count};
}

Operation all_reduce_weighted(Buffer buffer, float weight) {
    return weighted(all_reduce(buffer, ReduceOp::avg), static_cast<double>(weight));
}

Operation all_reduce_premul(Buffer buffer, double factor) {
    return weighted(all_reduce(buffer, ReduceOp::premul_sum), factor);
}

Operation reduce_scatter_premul(ConstBuffer input, Buffer output, double factor) {
    return weighted(reduce_scatter(input, output, ReduceOp::premul_sum), factor);
}

Operation reduce_scatter(ConstBuffer input, Buffer output, ReduceOp reduce) {
    return {.kind = OperationKind::reduce_scatter,
            .type = output.type,
            .reduce = reduce,
            .input = input.data,
            .output = output.data,
            .count = output.count};
}

Operation all_gather(ConstBuffer input, Buffer output) {
    return {.kind = OperationKind::all_gather,
            .type = input.type,
            .input = input.data,
            .output = output.data,
            .count = input.count};
}

Operation broadcast(Buffer buffer, int root) {
    return {.kind = OperationKind::broadcast,
            .type = buffer.type,
            .input = buffer.data,
            .output = buffer.data,
            .count = buffer.count,
            .peer = root};
}

Operation all_to_all(ConstBuffer input, Buffer output, int world) {
    return {.kind = OperationKind::all_to_all,
            .type = input.type,
            .input = input.data,
            .output = output.data,
            .count = input.count / static_cast<std::size_t>(world)};
}

Operation send(ConstBuffer buffer, int peer) {
    return {
        .kind = OperationKind::send, .type = buffer.type, .input = buffer.data, .count = buffer.count, .peer = peer};
}

Operation receive(Buffer buffer, int peer) {
    return {.kind = OperationKind::receive,
            .type = buffer.type,
            .output = buffer.data,
            .count = buffer.count,
            .peer = peer};
}

std::string describe(const Operation& operation) {
    if (operation.kind == OperationKind::barrier) return "barrier";
    const std::string peer = operation.kind == OperationKind::broadcast ? cat(" from rank ", operation.peer)
                             : operation.kind == OperationKind::send    ? cat(" to rank ", operation.peer)
                             : operation.kind == OperationKind::receive ? cat(" from rank ", operation.peer)
                                                                        : std::string();
    return cat(name(operation.kind), reduces(operation.kind) ? cat(" ", name(operation.reduce)) : std::string(), " ",
               name(operation.type), " x ", operation.count, peer);
}

}  // namespace muster
