// Who writes which elements of a checkpoint. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/checkpoint.h"

namespace muster::runtime {

/// Some neighbouring elements of one tensor, counted in row-major order.
struct Piece {
    std::string tensor;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;     ///< of the whole tensor
    std::uint64_t begin = 0, count = 0;  ///< elements

    [[nodiscard]] std::uint64_t size_bytes() const { return count * size_of(type); }
    /// It is all of its tensor.
    [[nodiscard]] bool whole() const;
    friend bool operator==(const Piece&, const Piece&) = default;
};

/// A replicated tensor below this size is always rank 0's.
inline constexpr std::uint64_t spread_bytes_min = 1u << 20;

/// What `rank` writes: all of its sharded pieces, and the replicated tensors that are its own. Each replicated tensor
/// is written by one rank, whole: by rank 0. With Replicas::spread the tensors of spread_bytes_min and more are divided
/// among the ranks, in parts of about equal size.
std::vector<Piece> own_pieces(const std::vector<StateTensor>& tensors, Replicas replicas, int rank, int world);

/// The tensor that holds a rank's own bytes; nobody's model has one of that name.
std::string rank_bytes_name(int rank);
bool is_rank_bytes(std::string_view name);

/// All that `rank` has of a state: its tensors, and its own bytes as one. Points into the state.
std::vector<StateTensor> tensors_of(const CheckpointState& state, int rank);

/// invalid_argument: a name that is empty, comes twice or is no UTF-8, a shape without a size, memory that is missing,
/// or elements beyond the tensor's end; the text names the tensor.
Result<void> check_state(const CheckpointState& state);

}  // namespace muster::runtime
