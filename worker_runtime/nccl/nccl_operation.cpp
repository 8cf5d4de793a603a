#include "worker_runtime/nccl/nccl_operation.h"

#include <algorithm>
#include <cstring>

#include "rendezvous/base/check.h"
#include "worker_runtime/arithmetic/half_formats.h"

namespace muster::runtime {

namespace {

std::vector<std::byte> bytes_of(auto value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

/// Sends to all ranks and receives from all, this one included, as one operation.
ncclResult_t exchange(const NcclTable& nccl, const Operation& operation, const NcclPlace& place,
                      ncclComm_t communicator, cudaStream_t stream) {
    const auto parts = parts_of(operation, place.rank, place.size);
    const std::size_t element = size_of(operation.type);
    const auto* const input = static_cast<const std::byte*>(operation.input);
    auto* const output = static_cast<std::byte*>(operation.output);
    const auto type = nccl_type(operation.type);
    ncclResult_t first = nccl.group_start();
    for (int rank = 0; rank < place.size && first == ncclSuccess; ++rank) {
        const Part& sent = parts.sent[static_cast<std::size_t>(rank)];
        const Part& expected = parts.expected[static_cast<std::size_t>(rank)];
        const bool in_place =
            rank == place.rank && sent.count > 0 && input + sent.offset * element == output + expected.offset * element;
        if (in_place) continue;
        if (sent.count > 0)
            first = nccl.send(input + sent.offset * element, sent.count, type, rank, communicator, stream);
        if (first == ncclSuccess && expected.count > 0)
            first = nccl.receive(output + expected.offset * element, expected.count, type, rank, communicator, stream);
    }
    const auto ended = nccl.group_end();
    return first == ncclSuccess ? ended : first;
}

std::size_t end_of(const std::vector<Part>& parts) {
    std::size_t end = 0;
    for (const auto& part : parts)
        if (part.count > 0) end = std::max(end, part.offset + part.count);
    return end;
}

}  // namespace

ncclDataType_t nccl_type(DataType type) {
    switch (type) {
        case DataType::f32: return ncclFloat32;
        case DataType::f64: return ncclFloat64;
        case DataType::f16: return ncclFloat16;
        case DataType::bf16: return ncclBfloat16;
        case DataType::i32: return ncclInt32;
        case DataType::i64: return ncclInt64;
        case DataType::u8: return ncclUint8;
        case DataType::i8: return ncclInt8;
        case DataType::u32: return ncclUint32;
        case DataType::u64: return ncclUint64;
        // NCCL has no type for these. They only move, as any type of their size does.
        case DataType::u16:
        case DataType::i16: return ncclFloat16;
    }
    MUSTER_CHECK(false, "unknown data type", static_cast<int>(type));
    return ncclUint8;
}

ncclRedOp_t nccl_reduction(ReduceOp reduce) {
    switch (reduce) {
        case ReduceOp::sum: return ncclSum;
        case ReduceOp::avg: return ncclAvg;
        case ReduceOp::min: return ncclMin;
        case ReduceOp::max: return ncclMax;
        case ReduceOp::product: return ncclProd;
        case ReduceOp::premul_sum: return ncclSum;
        case ReduceOp::band:
        case ReduceOp::bor:
        case ReduceOp::bxor: break;  // check() has refused it
    }
    MUSTER_CHECK(false, "unknown reduction", static_cast<int>(reduce));
    return ncclSum;
}

std::size_t input_count(const Operation& operation, const NcclPlace& place) {
    switch (operation.kind) {
        case OperationKind::barrier:
        case OperationKind::receive: return 0;
        case OperationKind::reduce_scatter: return operation.count * static_cast<std::size_t>(place.size);
        case OperationKind::all_to_all:
        case OperationKind::gather:
        case OperationKind::scatter:
        case OperationKind::all_to_all_uneven: return end_of(parts_of(operation, place.rank, place.size).sent);
        default: return operation.count;
    }
}

std::size_t output_count(const Operation& operation, const NcclPlace& place) {
    switch (operation.kind) {
        case OperationKind::barrier:
        case OperationKind::send: return 0;
        case OperationKind::all_gather: return operation.count * static_cast<std::size_t>(place.size);
        case OperationKind::reduce: return place.rank == operation.peer ? operation.count : 0;
        case OperationKind::all_to_all:
        case OperationKind::gather:
        case OperationKind::scatter:
        case OperationKind::all_to_all_uneven: return end_of(parts_of(operation, place.rank, place.size).expected);
        default: return operation.count;
    }
}

std::vector<std::byte> scalar_of(DataType type, double value) {
    switch (type) {
        case DataType::f64: return bytes_of(value);
        case DataType::f32: return bytes_of(static_cast<float>(value));
        case DataType::f16: return bytes_of(f16_of_f32(static_cast<float>(value)));
        case DataType::bf16: return bytes_of(bf16_of_f32(static_cast<float>(value)));
        default: MUSTER_CHECK(false, "no floating type", static_cast<int>(type));
    }
    return {};
}

ncclResult_t enqueue(const NcclTable& nccl, const Operation& operation, ncclRedOp_t reduction, const NcclPlace& place,
                     ncclComm_t communicator, cudaStream_t stream) {
    // check() has refused these: as the type that they move as, their bits would be added as floats.
    if (reduces(operation.kind) && (operation.type == DataType::u16 || operation.type == DataType::i16))
        return ncclInvalidArgument;
    const auto type = nccl_type(operation.type);
    const auto count = operation.count;
    const void* const input = operation.input;
    void* const output = operation.output;
    switch (operation.kind) {
        case OperationKind::barrier:
            return nccl.all_reduce(output, output, 1, ncclUint8, ncclSum, communicator, stream);
        case OperationKind::all_reduce:
            return nccl.all_reduce(input, output, count, type, reduction, communicator, stream);
        case OperationKind::reduce_scatter:
            return nccl.reduce_scatter(input, output, count, type, reduction, communicator, stream);
        case OperationKind::all_gather: return nccl.all_gather(input, output, count, type, communicator, stream);
        case OperationKind::broadcast:
            return nccl.broadcast(input, output, count, type, operation.peer, communicator, stream);
        case OperationKind::all_to_all:
        case OperationKind::gather:
        case OperationKind::scatter:
        case OperationKind::all_to_all_uneven: return exchange(nccl, operation, place, communicator, stream);
        case OperationKind::reduce:
            return nccl.reduce(input, output, count, type, reduction, operation.peer, communicator, stream);
        case OperationKind::send: return nccl.send(input, count, type, operation.peer, communicator, stream);
        case OperationKind::receive: return nccl.receive(output, count, type, operation.peer, communicator, stream);
    }
    return ncclInvalidArgument;
}

}  // namespace muster::runtime
