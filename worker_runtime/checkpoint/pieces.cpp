#include "worker_runtime/checkpoint/pieces.h"

#include <nlohmann/json.hpp>
#include <set>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text.h"
#include "worker_runtime/checkpoint/safetensors.h"

namespace muster {

StateTensor StateTensor::whole(std::string name, TensorType type, std::vector<std::int64_t> shape, void* data) {
    return {.name = std::move(name), .type = type, .shape = std::move(shape), .data = data};
}

StateTensor StateTensor::shard(std::string name, TensorType type, std::vector<std::int64_t> shape, void* data,
                               std::uint64_t begin, std::uint64_t count) {
    return {.name = std::move(name),
            .type = type,
            .shape = std::move(shape),
            .data = data,
            .placement = Placement::sharded,
            .begin = begin,
            .count = count};
}

}  // namespace muster

namespace muster::runtime {

namespace {

constexpr std::string_view rank_bytes_prefix = "muster.rank_bytes.";

/// Cuts fall on a page of the tensor where they can, so that copies and direct writes stay aligned.
constexpr std::uint64_t cut_alignment = 4096;

bool is_utf8(const std::string& text) {
    try {
        (void)nlohmann::json(text).dump();
        return true;
    } catch (const nlohmann::json::type_error&) {
        return false;
    }
}

/// Ends as the names of parts do in a rank's file.
bool looks_cut(std::string_view name) {
    const auto bracket = name.rfind('[');
    if (bracket == std::string_view::npos || !name.ends_with(']')) return false;
    const auto range = split(name.substr(bracket + 1, name.size() - bracket - 2), ':');
    std::uint64_t number = 0;
    return range.size() == 2 && parse_number(range[0], number) && parse_number(range[1], number);
}

Error refuse(const StateTensor& tensor, std::string_view why) {
    return {Errc::invalid_argument, cat("checkpoint state: tensor '", tensor.name, "' ", why)};
}

Result<void> check_tensor(const StateTensor& tensor) {
    if (tensor.name.empty() || !is_utf8(tensor.name)) return refuse(tensor, "has a name that is empty or no UTF-8");
    if (looks_cut(tensor.name)) return refuse(tensor, "ends like the name of a part, [0:2]");
    if (is_rank_bytes(tensor.name)) return refuse(tensor, "begins like the names of ranks' own bytes");
    if (tensor.name == "__metadata__") return refuse(tensor, "has a name that safetensors keeps for itself");
    const auto elements = element_count(tensor.shape);
    std::uint64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, size_of(tensor.type), &bytes)) {
        return refuse(tensor, "has a shape that is no size");
    }
    const bool sharded = tensor.placement == Placement::sharded;
    const auto count = sharded ? tensor.count : *elements;
    if (sharded && (tensor.begin > *elements || count > *elements - tensor.begin)) {
        return refuse(tensor, "has a shard beyond its end");
    }
    if (count > 0 && tensor.data == nullptr) return refuse(tensor, "has no memory");
    return {};
}

/// Where the shares of ranks before `rank` end: bytes into all replicated tensors, taken one behind the other.
class Cuts {
  public:
    Cuts(std::uint64_t total, int world) : total_(total), world_(static_cast<std::uint64_t>(world)) {}

    /// The elements of a tensor that begins at `offset` which belong to ranks before `rank`.
    [[nodiscard]] std::uint64_t elements_before(int rank, std::uint64_t offset, const Piece& tensor) const {
        const auto share = static_cast<std::uint64_t>(static_cast<unsigned __int128>(total_) *
                                                      static_cast<std::uint64_t>(rank) / world_);
        const auto bytes = tensor.size_bytes();
        if (static_cast<std::uint64_t>(rank) == world_ || share >= offset + bytes) return tensor.count;
        if (share <= offset) return 0;
        const auto inside = share - offset;
        if (bytes < cut_bytes_min) return 2 * inside > bytes ? tensor.count : 0;
        return inside / cut_alignment * cut_alignment / size_of(tensor.type);
    }

  private:
    std::uint64_t total_, world_;
};

}  // namespace

std::string rank_bytes_name(int rank) {
    return cat(rank_bytes_prefix, rank);
}

bool is_rank_bytes(std::string_view name) {
    return name.starts_with(rank_bytes_prefix);
}

std::vector<StateTensor> tensors_of(const CheckpointState& state, int rank) {
    auto tensors = state.tensors;
    const auto size = state.rank_bytes.size();
    if (size > 0) {
        // Only read from.
        auto* const data = const_cast<std::byte*>(state.rank_bytes.data());
        tensors.push_back(StateTensor::shard(rank_bytes_name(rank), TensorType::u8, {static_cast<std::int64_t>(size)},
                                             data, 0, size));
    }
    return tensors;
}

bool Piece::whole() const {
    return begin == 0 && element_count(shape) == count;
}

std::vector<Piece> own_pieces(const std::vector<StateTensor>& tensors, int rank, int world) {
    MUSTER_CHECK(rank >= 0 && rank < world, rank, world);
    std::uint64_t total = 0;
    for (const auto& tensor : tensors) {
        if (tensor.placement == Placement::replicated) total += *element_count(tensor.shape) * size_of(tensor.type);
    }
    const Cuts cuts(total, world);
    std::vector<Piece> pieces;
    std::uint64_t offset = 0;
    for (const auto& tensor : tensors) {
        Piece piece{.tensor = tensor.name, .type = tensor.type, .shape = tensor.shape};
        if (tensor.placement == Placement::sharded) {
            piece.begin = tensor.begin;
            piece.count = tensor.count;
            if (piece.count > 0) pieces.push_back(std::move(piece));
            continue;
        }
        piece.count = *element_count(tensor.shape);
        const auto bytes = piece.size_bytes();
        const auto begin = cuts.elements_before(rank, offset, piece),
                   end = cuts.elements_before(rank + 1, offset, piece);
        offset += bytes;
        // A tensor without elements is nobody's by size: rank 0 writes its name and shape.
        const bool empty = piece.count == 0;
        piece.begin = begin;
        piece.count = end - begin;
        if (piece.count > 0 || (empty && rank == 0)) pieces.push_back(std::move(piece));
    }
    return pieces;
}

Result<void> check_state(const CheckpointState& state) {
    std::set<std::string> names;
    for (const auto& tensor : state.tensors) {
        if (auto fine = check_tensor(tensor); !fine) return fine;
        // One rank may have several shards of one tensor; anything else that comes twice is a mistake.
        const bool again = !names.insert(tensor.name).second;
        if (again && tensor.placement == Placement::replicated) return refuse(tensor, "comes twice");
    }
    for (const auto& [key, value] : state.values) {
        if (!is_utf8(key) || !is_utf8(value)) {
            return Error{Errc::invalid_argument, cat("checkpoint state: the value of '", key, "' is no UTF-8")};
        }
    }
    if (!is_utf8(state.rank_value)) return Error{Errc::invalid_argument, "checkpoint state: rank_value is no UTF-8"};
    return {};
}

}  // namespace muster::runtime
