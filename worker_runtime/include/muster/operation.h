// A collective as a value: what to do with which memory. Communicator::run() and start() take one.
//
//     auto done = world.run(muster::all_reduce(muster::buffer(gradients), muster::ReduceOp::avg));
//
// The memory belongs to the caller. It must stay valid, and must not be touched, until run() has returned or the work
// that start() gave is over. Memory from Communicator::allocate() is used where it lies; any other is copied through
// windows, which costs about three times as much for large all-reduces.
//
// Counts are in elements. Output never overlaps input, except where an operation is said to work in place.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "muster/data_type.h"

namespace muster {

namespace runtime {
class CollectiveSteps;
}

/// The values travel in signatures and flight records: never renumber them.
enum class OperationKind : std::uint8_t {
    barrier = 0,
    all_reduce = 1,
    reduce_scatter = 2,
    all_gather = 3,
    broadcast = 4,
    all_to_all = 5,
    send = 6,
    receive = 7,
};

/// "all_reduce".
std::string_view name(OperationKind kind);

/// How ranks' elements become one. Sums run in rank order ((x0 + x1) + x2 ...), of f16, bf16 and f32 in f32 and rounded
/// once at the end, of f64 in f64, of integers exactly (they wrap): the same bits on every run, for every way of
/// cutting the data into operations.
enum class ReduceOp : std::uint8_t {
    sum = 0,
    avg = 1,  ///< floating types only: sum(weight x) / sum(weight), multiplied by the reciprocal once at the end
    min = 2,  ///< NaN where any rank has NaN
    max = 3,  ///< NaN where any rank has NaN
};

/// "sum".
std::string_view name(ReduceOp reduce);

/// `count` elements of one type at `data`.
struct Buffer {
    void* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::u8;

    [[nodiscard]] std::size_t size_bytes() const { return count * size_of(type); }
};

/// Memory that is only read.
struct ConstBuffer {
    const void* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::u8;

    ConstBuffer() = default;
    ConstBuffer(const void* from, std::size_t elements, DataType of) : data(from), count(elements), type(of) {}
    ConstBuffer(const Buffer& buffer)
        : data(buffer.data), count(buffer.count), type(buffer.type) {}  // NOLINT: implicit
};

/// The data type of a C++ type that has one. f16 and bf16 have none: build their Buffer by hand.
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

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::uint8_t>;

/// The span's memory as a Buffer.
template <Element T>
Buffer buffer(std::span<T> elements) {
    return {.data = elements.data(), .count = elements.size(), .type = data_type_of<T>};
}

struct Operation {
    OperationKind kind = OperationKind::barrier;
    DataType type = DataType::u8;
    ReduceOp reduce = ReduceOp::sum;
    const void* input = nullptr;
    void* output = nullptr;
    std::size_t count = 0;  ///< of one rank's piece, as each maker below says
    int peer = -1;          ///< broadcast: the root; send and receive: the other rank
    float weight = 1;       ///< of this rank in an average; >= 0, and not 0 on all ranks
    bool weighted = false;  ///< ranks may have different weights; the same on all ranks
    /// NCCL only, with `weighted`: the weights of all ranks, in rank order, of a caller who knows them; read when the
    /// operation is launched, so an operation started before may bring them. Null: the ranks tell each other first, and
    /// the operation cannot be launched behind others.
    const float* weights = nullptr;
    /// NCCL only: a cudaEvent_t of the caller's stream, behind the work that makes the input. The operation starts on
    /// the GPU when it has come. Null: the input is there already.
    void* after = nullptr;
    /// NCCL only, for the engine: arithmetic around a collective with elements, on its stream.
    const runtime::CollectiveSteps* steps = nullptr;
    std::uint32_t tag = 0;  ///< the caller's, equal on all ranks: compared with the peers', kept in the flight record
};

/// Returns when all ranks have come.
Operation barrier();

/// In place: every rank's `count` elements become the same result.
Operation all_reduce(Buffer buffer, ReduceOp reduce);

/// An average in which this rank counts as much as its `weight` (its samples): right also when ranks have seen
/// different numbers of them.
Operation all_reduce_weighted(Buffer buffer, float weight);

/// `input` holds world x output.count elements, piece r for rank r; `output` gets this rank's piece of the result. In
/// place where output is this rank's piece of input.
Operation reduce_scatter(ConstBuffer input, Buffer output, ReduceOp reduce);

/// `output` holds world x input.count elements; piece r is rank r's input. In place where input is this rank's piece.
Operation all_gather(ConstBuffer input, Buffer output);

/// Every rank gets root's elements.
Operation broadcast(Buffer buffer, int root);

/// Both hold world pieces of equal size: piece r of `input` goes to rank r, piece r of `output` comes from rank r.
Operation all_to_all(ConstBuffer input, Buffer output, int world);

/// To `peer`, whose matching call is receive(). Sends between two ranks arrive in the order in which they were started;
/// between sends, receives and collectives there is no order.
Operation send(ConstBuffer buffer, int peer);
Operation receive(Buffer buffer, int peer);

/// "all_reduce sum f32 x 1024", for messages.
std::string describe(const Operation& operation);

}  // namespace muster
