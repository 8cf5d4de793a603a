// Decides which rank writes which elements of a checkpoint. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/checkpoint.h"

namespace muster::runtime {

/// A range of elements of one tensor, in row-major order.
struct Piece {
    std::string tensor;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;     ///< shape of the whole tensor
    std::uint64_t begin = 0, count = 0;  ///< elements

    [[nodiscard]] std::uint64_t size_bytes() const { return count * size_of(type); }
    /// True if the piece is its whole tensor.
    [[nodiscard]] bool whole() const;
    friend bool operator==(const Piece&, const Piece&) = default;
};

/// Rank 0 always writes replicated tensors below this size.
inline constexpr std::uint64_t spread_bytes_min = 1u << 20;

/// Returns the pieces that `rank` writes: its shards, and its replicated tensors. One rank writes each replicated
/// tensor, whole: rank 0. With Replicas::spread, tensors of spread_bytes_min or more are divided among the ranks in
/// parts of about equal size.
std::vector<Piece> own_pieces(const std::vector<StateTensor>& tensors, Replicas replicas, int rank, int world);

/// The name of the tensor that holds a rank's own bytes. check_state() refuses it for other tensors.
std::string rank_bytes_name(int rank);
bool is_rank_bytes(std::string_view name);

/// Returns all tensors of `rank`: those of the state, and its own bytes as one more. They point into the state.
std::vector<StateTensor> tensors_of(const CheckpointState& state, int rank);

/// invalid_argument names the tensor: its name is empty, occurs twice or is not UTF-8, its shape has no size, its
/// memory is missing, or its shard is beyond its end.
Result<void> check_state(const CheckpointState& state);

}  // namespace muster::runtime
