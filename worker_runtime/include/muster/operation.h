// A collective operation as a value. Pass it to Communicator::run() or start().
//
//     auto done = world.run(muster::all_reduce(muster::buffer(gradients), muster::ReduceOp::avg));
//
// The memory belongs to the caller. It must stay valid and untouched until run() returns or the work from start() is
// over. Memory from Communicator::allocate() is used in place. Other memory is copied through windows, at about three
// times the cost for large all-reduces.
//
// Counts are in elements. Output must not overlap input, unless the operation's comment allows it.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/data_type.h"

namespace muster {

namespace runtime {
class CollectiveSteps;
}

/// The values are part of signatures and flight records: never renumber them.
enum class OperationKind : std::uint8_t {
    barrier = 0,
    all_reduce = 1,
    reduce_scatter = 2,
    all_gather = 3,
    broadcast = 4,
    all_to_all = 5,
    send = 6,
    receive = 7,
    gather = 8,
    scatter = 9,
    all_to_all_uneven = 10,
    reduce = 11,
};

inline constexpr auto last_operation_kind = OperationKind::reduce;

/// Between two ranks; all others are collectives.
constexpr bool is_paired(OperationKind kind) {
    return kind == OperationKind::send || kind == OperationKind::receive;
}

/// Has a ReduceOp; the others only move elements.
constexpr bool reduces(OperationKind kind) {
    return kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter || kind == OperationKind::reduce;
}

/// Has a root, Operation::peer.
constexpr bool has_root(OperationKind kind) {
    return kind == OperationKind::broadcast || kind == OperationKind::gather || kind == OperationKind::scatter ||
           kind == OperationKind::reduce;
}

/// The name, such as "all_reduce".
std::string_view name(OperationKind kind);

/// The reduction of the ranks' elements to one. Sums and products run in rank order ((x0 + x1) + x2 ...). f16, bf16 and
/// f32 are accumulated in f32 and rounded once at the end, f64 in f64, integers exactly (they wrap). So the bits are
/// the same on every run, and for every split of the data into operations.
enum class ReduceOp : std::uint8_t {
    sum = 0,
    avg = 1,  ///< floating types only: sum(weight x) times the reciprocal of sum(weight), computed once at the end
    min = 2,  ///< NaN where any rank has NaN
    max = 3,  ///< NaN where any rank has NaN
    product = 4,
    band = 5,       ///< bitwise and; integer types only, as the next two
    bor = 6,        ///< bitwise or
    bxor = 7,       ///< bitwise exclusive or
    premul_sum = 8  ///< floating types only: sum(factor x), in the precision of sums; all_reduce_premul()
};
inline constexpr int reduce_op_count = 9;

constexpr bool is_bitwise(ReduceOp reduce) {
    return reduce == ReduceOp::band || reduce == ReduceOp::bor || reduce == ReduceOp::bxor;
}

/// For values from outside: other memory, a connection, a file.
constexpr bool is_known(OperationKind kind, DataType type, ReduceOp reduce) {
    return kind <= last_operation_kind && is_data_type(static_cast<int>(type)) &&
           static_cast<int>(reduce) < reduce_op_count;
}

/// True if each rank's elements are multiplied by Operation::weight.
constexpr bool multiplies(ReduceOp reduce) {
    return reduce == ReduceOp::avg || reduce == ReduceOp::premul_sum;
}

/// The name, such as "sum".
std::string_view name(ReduceOp reduce);

/// `count` elements of one type at `data`.
struct Buffer {
    void* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::u8;

    [[nodiscard]] std::size_t size_bytes() const { return count * size_of(type); }
};

/// Read-only memory.
struct ConstBuffer {
    const void* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::u8;

    ConstBuffer() = default;
    ConstBuffer(const void* from, std::size_t elements, DataType of) : data(from), count(elements), type(of) {}
    ConstBuffer(const Buffer& buffer)
        : data(buffer.data), count(buffer.count), type(buffer.type) {}  // NOLINT: implicit
};

/// The data type of a C++ type. f16 and bf16 have no C++ type: fill in their Buffer yourself.
template <class T>
inline constexpr DataType data_type_of = DataType::u8;
template <>
inline constexpr DataType data_type_of<float> = DataType::f32;
template <>
inline constexpr DataType data_type_of<double> = DataType::f64;
template <>
inline constexpr DataType data_type_of<std::int32_t> = DataType::i32;
template <>
inline constexpr DataType data_type_of<std::int64_t> = DataType::i64;
template <>
inline constexpr DataType data_type_of<std::int8_t> = DataType::i8;
template <>
inline constexpr DataType data_type_of<std::uint16_t> = DataType::u16;
template <>
inline constexpr DataType data_type_of<std::int16_t> = DataType::i16;
template <>
inline constexpr DataType data_type_of<std::uint32_t> = DataType::u32;
template <>
inline constexpr DataType data_type_of<std::uint64_t> = DataType::u64;

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int8_t> ||
    std::same_as<T, std::uint16_t> || std::same_as<T, std::int16_t> || std::same_as<T, std::uint32_t> ||
    std::same_as<T, std::uint64_t>;

/// The span's memory as a Buffer.
template <Element T>
Buffer buffer(std::span<T> elements) {
    return {.data = elements.data(), .count = elements.size(), .type = data_type_of<T>};
}

/// Elements of a buffer that are for one rank, or from it.
struct Part {
    std::size_t count = 0;
    std::size_t offset = 0;
};

/// What a rank sends to each rank, and expects from each, in rank order.
struct Parts {
    std::vector<Part> sent;
    std::vector<Part> expected;
};

/// Parts of these counts, each behind the one before.
std::vector<Part> parts_in_a_row(std::span<const std::size_t> counts);

struct Operation {
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 0;  ///< elements of one rank's piece; the function that makes the operation defines the piece
    int peer = -1;          ///< the root, or of send and receive the other rank
    /// This rank's weight in an average: >= 0, and not 0 on all ranks. Its factor in a premul_sum: any number.
    double weight = 1;
    bool weighted = false;  ///< true if ranks may have different weights; equal on all ranks
    /// NCCL only, with `weighted`: the weights of all ranks in rank order, if the caller knows them. Read when the
    /// operation is launched, so an earlier operation may produce them. Null: the ranks exchange their weights first,
    /// and the operation cannot be queued on the GPU behind others.
    const float* weights = nullptr;
    /// NCCL only: a cudaEvent_t recorded after the work that produces the input. The operation waits for it on the GPU.
    /// Null: the input is complete.
    void* after = nullptr;
    /// NCCL only, for the gradient engine: arithmetic before and after the collective, on its stream.
    const runtime::CollectiveSteps* steps = nullptr;
    std::uint32_t tag =
        0;  ///< chosen by the caller, equal on all ranks: compared with the peers', kept in the flight record
    std::shared_ptr<const Parts> parts{};  ///< all_to_all_uneven only
};

/// Returns when all ranks have entered it.
Operation barrier();

/// In place: every rank's `count` elements are replaced by the same result.
Operation all_reduce(Buffer buffer, ReduceOp reduce);

/// An average in which this rank has weight `weight` (its number of samples). It is the mean over all samples even if
/// ranks have different numbers of them.
Operation all_reduce_weighted(Buffer buffer, float weight);

/// The sum over all ranks of `factor` times the rank's elements. Each rank may have another factor. It is used in the
/// precision of the sum: f64 for f64, else f32. Over NCCL it is rounded to the type of the elements.
Operation all_reduce_premul(Buffer buffer, double factor);
Operation reduce_scatter_premul(ConstBuffer input, Buffer output, double factor);

/// `input` has world x output.count elements, piece r for rank r. `output` receives this rank's piece of the result. In
/// place if `output` is this rank's piece of `input`.
Operation reduce_scatter(ConstBuffer input, Buffer output, ReduceOp reduce);

/// `output` has world x input.count elements; piece r is rank r's input. In place if `input` is this rank's piece.
Operation all_gather(ConstBuffer input, Buffer output);

/// Copies the root's elements to every rank.
Operation broadcast(Buffer buffer, int root);

/// `input` and `output` have one piece of equal size per rank: piece r of `input` goes to rank r, piece r of `output`
/// comes from rank r.
Operation all_to_all(ConstBuffer input, Buffer output, int world);

/// Collects all ranks' `input` at the root: its `output` has world x input.count elements, piece r from rank r. Other
/// ranks' `output.data` is not used. In place if the root's `input` is its piece of `output`.
Operation gather(ConstBuffer input, Buffer output, int root);

/// Piece r of the root's `input`, which has world x output.count elements, goes to rank r's `output`. Other ranks'
/// `input.data` is not used. In place if the root's `output` is its piece of `input`.
Operation scatter(ConstBuffer input, Buffer output, int root);

/// The root's `output` receives the reduction of all ranks' `input`; other ranks' `output.data` is not used. It may be
/// the same memory as `input`. The bits are those of an all_reduce, except over NCCL.
Operation reduce(ConstBuffer input, Buffer output, ReduceOp reduction, int root);
Operation reduce_premul(ConstBuffer input, Buffer output, double factor, int root);

/// An all_to_all of parts of any size, at any place of `input` and `output`. Each rank states what it sends and what it
/// expects. All ranks compare this first: if two ranks contradict each other, the operation fails on all with both
/// numbers, and the communicator goes on: Communicator::status() is good then. Parts of `output` must not overlap. With
/// NCCL the host waits for the comparison, and if `output` is host memory, what lies between its parts must stay
/// untouched too.
Operation all_to_all_uneven(const void* input, void* output, DataType type, Parts parts);

/// Sends to `peer`, which must call receive(). Sends between two ranks arrive in the order of their starts. There is no
/// order between sends, receives and collectives.
Operation send(ConstBuffer buffer, int peer);
Operation receive(Buffer buffer, int peer);

/// What an all_to_all, gather, scatter or all_to_all_uneven moves, as parts of this rank's buffers.
Parts parts_of(const Operation& operation, int rank, int size);

/// A text such as "all_reduce sum f32 x 1024", for messages.
std::string describe(const Operation& operation);

}  // namespace muster
