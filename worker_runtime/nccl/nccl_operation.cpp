#include "worker_runtime/nccl/nccl_operation.h"

#include <cstring>

#include "rendezvous/base/check.h"
#include "worker_runtime/arithmetic/half_formats.h"

namespace muster::runtime {

namespace {

template <class T>
std::vector<std::byte> bytes_of(T value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

/// Every rank sends to each rank and receives from each, including itself, as one operation.
ncclResult_t all_to_all(const NcclTable& nccl, const Operation& operation, int size, ncclComm_t communicator,
                        cudaStream_t stream) {
    const std::size_t piece = operation.count * size_of(operation.type);
    const auto* const input = static_cast<const std::byte*>(operation.input);
    auto* const output = static_cast<std::byte*>(operation.output);
    const auto type = nccl_type(operation.type);
    ncclResult_t first = nccl.group_start();
    for (int rank = 0; rank < size && first == ncclSuccess; ++rank) {
        const std::size_t at = static_cast<std::size_t>(rank) * piece;
        first = nccl.send(input + at, operation.count, type, rank, communicator, stream);
        if (first == ncclSuccess) {
            first = nccl.receive(output + at, operation.count, type, rank, communicator, stream);
        }
    }
    const auto ended = nccl.group_end();
    return first == ncclSuccess ? ended : first;
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

std::size_t input_count(const Operation& operation, int size) {
    switch (operation.kind) {
        case OperationKind::barrier:
        case OperationKind::receive: return 0;
        case OperationKind::reduce_scatter:
        case OperationKind::all_to_all: return operation.count * static_cast<std::size_t>(size);
        default: return operation.count;
    }
}

std::size_t output_count(const Operation& operation, int size) {
    switch (operation.kind) {
        case OperationKind::barrier:
        case OperationKind::send: return 0;
        case OperationKind::all_gather:
        case OperationKind::all_to_all: return operation.count * static_cast<std::size_t>(size);
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

ncclResult_t enqueue(const NcclTable& nccl, const Operation& operation, ncclRedOp_t reduction, int size,
                     ncclComm_t communicator, cudaStream_t stream) {
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
        case OperationKind::all_to_all: return all_to_all(nccl, operation, size, communicator, stream);
        case OperationKind::send: return nccl.send(input, count, type, operation.peer, communicator, stream);
        case OperationKind::receive: return nccl.receive(output, count, type, operation.peer, communicator, stream);
    }
    return ncclInvalidArgument;
}

}  // namespace muster::runtime
