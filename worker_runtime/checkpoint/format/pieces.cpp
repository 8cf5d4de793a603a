#include "worker_runtime/checkpoint/format/pieces.h"

#include <nlohmann/json.hpp>
#include <set>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

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

bool is_utf8(const std::string& text) {
    try {
        (void)nlohmann::json(text).dump();
        return true;
    } catch (const nlohmann::json::type_error&) {
        return false;
    }
}

/// True if the name ends like those of parts in a rank's file.
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
    if (tensor.name.empty() || !is_utf8(tensor.name)) return refuse(tensor, "has a name that is empty or not UTF-8");
    if (looks_cut(tensor.name)) return refuse(tensor, "ends like the name of a part, [0:2]");
    if (is_rank_bytes(tensor.name)) return refuse(tensor, "begins like the names of ranks' own bytes");
    if (tensor.name == "__metadata__") return refuse(tensor, "has a name that safetensors reserves");
    const auto elements = element_count(tensor.shape);
    std::uint64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, size_of(tensor.type), &bytes)) {
        return refuse(tensor, "has an invalid shape");
    }
    const bool sharded = tensor.placement == Placement::sharded;
    const auto count = sharded ? tensor.count : *elements;
    if (sharded && (tensor.begin > *elements || count > *elements - tensor.begin)) {
        return refuse(tensor, "has a shard beyond its end");
    }
    if (count > 0 && tensor.data == nullptr) return refuse(tensor, "has no memory");
    return {};
}

std::uint64_t size_bytes(const StateTensor& tensor) {
    return *element_count(tensor.shape) * size_of(tensor.type);
}

bool is_spread(const StateTensor& tensor, Replicas replicas) {
    return replicas == Replicas::spread && tensor.placement == Placement::replicated &&
           size_bytes(tensor) >= spread_bytes_min;
}

/// Returns the writer of each replicated tensor; call next() for all tensors in order. Spread tensors are concatenated
/// and divided into `world` equal parts; the rank whose part has a tensor's middle writes it.
class Writers {
  public:
    Writers(const std::vector<StateTensor>& tensors, Replicas replicas, int world) : replicas_(replicas) {
        std::uint64_t total = 0;
        for (const auto& tensor : tensors) total += is_spread(tensor, replicas) ? size_bytes(tensor) : 0;
        part_ = total / static_cast<std::uint64_t>(world) + 1;  // + 1: the last middle is inside the last part
    }
    [[nodiscard]] int next(const StateTensor& tensor) {
        if (!is_spread(tensor, replicas_)) return 0;
        const auto middle = begin_ + size_bytes(tensor) / 2;
        begin_ += size_bytes(tensor);
        return static_cast<int>(middle / part_);
    }

  private:
    Replicas replicas_;
    std::uint64_t part_ = 1;
    std::uint64_t begin_ = 0;
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
        // The data is only read.
        auto* const data = const_cast<std::byte*>(state.rank_bytes.data());
        tensors.push_back(StateTensor::shard(rank_bytes_name(rank), TensorType::u8, {static_cast<std::int64_t>(size)},
                                             data, 0, size));
    }
    return tensors;
}

bool Piece::whole() const {
    return begin == 0 && element_count(shape) == count;
}

std::vector<Piece> own_pieces(const std::vector<StateTensor>& tensors, Replicas replicas, int rank, int world) {
    MUSTER_CHECK(rank >= 0 && rank < world, rank, world);
    Writers writers(tensors, replicas, world);
    std::vector<Piece> pieces;
    for (const auto& tensor : tensors) {
        Piece piece{.tensor = tensor.name, .type = tensor.type, .shape = tensor.shape};
        if (tensor.placement == Placement::sharded) {
            piece.begin = tensor.begin;
            piece.count = tensor.count;
            if (piece.count > 0) pieces.push_back(std::move(piece));
        } else if (writers.next(tensor) == rank) {
            piece.count = *element_count(tensor.shape);
            pieces.push_back(std::move(piece));
        }
    }
    return pieces;
}

Result<void> check_state(const CheckpointState& state) {
    std::set<std::string> names;
    for (const auto& tensor : state.tensors) {
        if (auto fine = check_tensor(tensor); !fine) return fine;
        // One rank may have several shards of one tensor; any other repeated name is an error.
        const bool again = !names.insert(tensor.name).second;
        if (again && tensor.placement == Placement::replicated) return refuse(tensor, "occurs twice");
    }
    for (const auto& [key, value] : state.values) {
        if (!is_utf8(key) || !is_utf8(value)) {
            return Error{Errc::invalid_argument, cat("checkpoint state: the value of '", key, "' is not UTF-8")};
        }
    }
    if (!is_utf8(state.rank_value)) return Error{Errc::invalid_argument, "checkpoint state: rank_value is not UTF-8"};
    return {};
}

}  // namespace muster::runtime
