// The operations of the NCCL stand-in. Every rank gives its bytes to all, and each works out its own result.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/stand_ins/nccl_comm.h"
#include "tests/unit/worker_runtime/arithmetic/reduce_reference.h"

namespace muster::stand_ins {

namespace {

DataType type_of(ncclDataType_t type) {
    switch (type) {
        case ncclFloat32: return DataType::f32;
        case ncclFloat64: return DataType::f64;
        case ncclFloat16: return DataType::f16;
        case ncclBfloat16: return DataType::bf16;
        case ncclInt32: return DataType::i32;
        case ncclInt64: return DataType::i64;
        case ncclInt8: return DataType::i8;
        case ncclUint32: return DataType::u32;
        case ncclUint64: return DataType::u64;
        default: return DataType::u8;
    }
}

ReduceOp reduction_of(ncclRedOp_t reduction) {
    switch (reduction) {
        case ncclAvg: return ReduceOp::avg;
        case ncclMin: return ReduceOp::min;
        case ncclMax: return ReduceOp::max;
        case ncclProd: return ReduceOp::product;
        default: return ReduceOp::sum;
    }
}

double number_at(DataType type, const Frame& bytes, std::size_t index) {
    using namespace muster::test;
    switch (type) {
        case DataType::f64: return read<double>(bytes, index);
        case DataType::f16: return static_cast<double>(binary16.decode(read<std::uint16_t>(bytes, index)));
        case DataType::bf16: return static_cast<double>(bfloat16.decode(read<std::uint16_t>(bytes, index)));
        default: return static_cast<double>(read<float>(bytes, index));
    }
}

void write_number(DataType type, Frame& bytes, std::size_t index, double value) {
    using namespace muster::test;
    switch (type) {
        case DataType::f64: return write(bytes, index, value);
        case DataType::f16: return write(bytes, index, binary16.encode(static_cast<float>(value)));
        case DataType::bf16: return write(bytes, index, bfloat16.encode(static_cast<float>(value)));
        default: return write(bytes, index, static_cast<float>(value));
    }
}

/// The scalar that a reduction multiplies by; empty where it has none.
Frame scalar_of(const CommPointer& comm, int reduction) {
    const auto found = comm->scalars.find(reduction);
    return found == comm->scalars.end() ? Frame() : found->second;
}

/// This rank's elements, multiplied by `scalar` where there is one.
Frame contribution(const void* data, std::size_t count, DataType type, const Frame& scalar) {
    const std::size_t bytes = count * muster::size_of(type);
    const void* const from = standin_reach(data);
    if (scalar.empty()) return frame_of('r', from, bytes);
    Frame elements(bytes);
    std::memcpy(elements.data(), from, bytes);
    const double factor = number_at(type, scalar, 0);
    for (std::size_t i = 0; i < count; ++i) {
        write_number(type, elements, i, number_at(type, elements, i) * factor);
    }
    return frame_of('r', elements.data(), bytes);
}

ncclResult_t reduce(const void* input, void* output, std::size_t count, std::size_t output_start,
                    std::size_t output_count, ncclDataType_t type, ncclRedOp_t reduction, ncclComm_t handle,
                    cudaStream_t stream) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    if (!is_of_device(input) || !is_of_device(output)) return refuse(ncclInvalidArgument, "host memory");
    const DataType element = type_of(type);
    return enqueue(
        comm, stream,
        // The reduction may be forgotten as soon as the call has returned.
        [=, scalar = scalar_of(comm, reduction)] { return contribution(input, count, element, scalar); },
        [=](const std::vector<Frame>& frames) {
            if (!alike(frames)) return false;
            std::vector<Frame> inputs;
            for (const auto& frame : frames) inputs.emplace_back(frame.begin() + 1, frame.end());
            const auto whole = muster::test::reference(element, reduction_of(reduction), inputs);
            const std::size_t size = muster::size_of(element);
            std::memcpy(standin_reach(output), whole.data() + output_start * size, output_count * size);
            return true;
        });
}

ncclResult_t spread(char kind, const void* input, std::size_t input_bytes, void* output, int root, ncclComm_t handle,
                    cudaStream_t stream) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    if (!is_of_device(output)) return refuse(ncclInvalidArgument, "host memory");
    return enqueue(
        comm, stream, [=] { return frame_of(kind, standin_reach(input), input_bytes); },
        [=](const std::vector<Frame>& frames) {
            if (!alike(frames)) return false;
            auto* at = static_cast<unsigned char*>(standin_reach(output));
            for (std::size_t rank = 0; rank < frames.size(); ++rank) {
                if (root >= 0 && static_cast<std::size_t>(root) != rank) continue;
                std::memcpy(at, frames[rank].data() + 1, input_bytes);
                at += input_bytes;
            }
            return true;
        });
}

// A frame of sends holds (receiver, size, bytes) again and again

struct Piece {
    std::int32_t to;
    std::uint64_t size;
};

Frame pieces_of(const std::vector<Transfer>& transfers) {
    Frame frame(1, 'p');
    for (const auto& one : transfers) {
        if (!one.sends) continue;
        const Piece piece{.to = one.peer, .size = one.bytes};
        const auto* const head = reinterpret_cast<const unsigned char*>(&piece);
        const auto* const data = static_cast<const unsigned char*>(standin_reach(one.memory));
        frame.insert(frame.end(), head, head + sizeof piece);
        frame.insert(frame.end(), data, data + one.bytes);
    }
    return frame;
}

/// Hands out what `frame`, of rank `from`, has for `own`, to the receives from it, in order.
bool deliver(const Frame& frame, int from, int own, const std::vector<Transfer>& transfers) {
    std::size_t at = 1;
    auto next = transfers.begin();
    while (at + sizeof(Piece) <= frame.size()) {
        Piece piece;
        std::memcpy(&piece, frame.data() + at, sizeof piece);
        at += sizeof piece;
        if (piece.to == own) {
            next = std::find_if(next, transfers.end(),
                                [from](const Transfer& one) { return !one.sends && one.peer == from; });
            if (next == transfers.end() || next->bytes != piece.size) return false;
            std::memcpy(standin_reach(next->memory), frame.data() + at, piece.size);
            ++next;
        }
        at += piece.size;
    }
    return std::none_of(next, transfers.end(), [from](const Transfer& one) { return !one.sends && one.peer == from; });
}

ncclResult_t transfer(bool sends, void* memory, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    if (!is_of_device(memory)) return refuse(ncclInvalidArgument, "host memory");
    Transfer one{comm, sends, peer, memory, count * muster::size_of(type_of(type)), stream};
    if (group.depth == 0) return move({one});
    group.transfers.push_back(std::move(one));
    return ncclSuccess;
}

}  // namespace

ncclResult_t move(std::vector<Transfer> transfers) {
    const auto comm = transfers.front().comm;
    const auto stream = transfers.front().stream;
    return enqueue(
        comm, stream, [transfers] { return pieces_of(transfers); },
        [transfers, comm](const std::vector<Frame>& frames) {
            for (int rank = 0; rank < comm->size; ++rank) {
                const auto& frame = frames[static_cast<std::size_t>(rank)];
                if (frame.front() != 'p' || !deliver(frame, rank, comm->rank, transfers)) return false;
            }
            return true;
        });
}

}  // namespace muster::stand_ins

using namespace muster::stand_ins;

extern "C" {

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
    return reduce(input, output, count, 0, count, type, reduction, comm, stream);
}

ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                        int root, ncclComm_t handle, cudaStream_t stream) {
    const auto comm = find(handle);
    if (!comm) return ncclInvalidArgument;
    const bool is_root = comm->rank == root;
    void* const place = is_root ? output : const_cast<void*>(input);
    return reduce(input, place, count, 0, is_root ? count : 0, type, reduction, handle, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t handle, cudaStream_t stream) {
    const auto comm = find(handle);
    if (!comm) return ncclInvalidArgument;
    return reduce(input, output, count * static_cast<std::size_t>(comm->size),
                  count * static_cast<std::size_t>(comm->rank), count, type, reduction, handle, stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return spread('g', input, count * muster::size_of(type_of(type)), output, -1, comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return spread('b', input, count * muster::size_of(type_of(type)), output, root, comm, stream);
}

ncclResult_t ncclSend(const void* memory, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return transfer(true, const_cast<void*>(memory), count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void* memory, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return transfer(false, memory, count, type, peer, comm, stream);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* reduction, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t /*residence*/, ncclComm_t handle) {
    const auto comm = find(handle);
    if (const auto good = usable(comm); good != ncclSuccess) return good;
    const auto* const bytes = static_cast<const unsigned char*>(scalar);
    comm->scalars[comm->next_reduction] = Frame(bytes, bytes + muster::size_of(type_of(type)));
    *reduction = static_cast<ncclRedOp_t>(comm->next_reduction++);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t reduction, ncclComm_t handle) {
    const auto comm = find(handle);
    return comm && comm->scalars.erase(reduction) == 1 ? ncclSuccess : ncclInvalidArgument;
}

}  // extern "C"
