#include "worker_runtime/checkpoint/files/loader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

std::string shape_text(TensorType type, const std::vector<std::int64_t>& shape) {
    std::string text = cat(name(type), "[");
    for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
    return text + "]";
}

/// A range of a piece that one of the tensors needs.
struct Wish {
    std::uint64_t begin = 0, end = 0;  ///< bytes, from the beginning of the piece
    std::byte* to = nullptr;
};

/// A piece to read. All of it must be read, because its checksum covers all of it.
struct WantedPiece {
    const ManifestTensor* tensor = nullptr;
    ManifestPiece piece;
    std::vector<Wish> wishes;

    [[nodiscard]] std::uint64_t size_bytes() const { return piece.count * size_of(tensor->type); }
};

const ManifestTensor* find(const Manifest& manifest, const std::string& name) {
    const auto at = std::lower_bound(manifest.tensors.begin(), manifest.tensors.end(), name,
                                     [](const ManifestTensor& a, const std::string& b) { return a.name < b; });
    return at != manifest.tensors.end() && at->name == name ? &*at : nullptr;
}

/// Returns the pieces to read, by file and in order of their offsets.
std::map<std::uint64_t, std::vector<WantedPiece>> wanted_pieces(const Manifest& manifest,
                                                                const std::vector<StateTensor>& tensors) {
    std::map<std::pair<std::uint64_t, std::uint64_t>, WantedPiece> wanted;  // by file and offset
    for (const auto& tensor : tensors) {
        const auto* saved = find(manifest, tensor.name);
        MUSTER_CHECK(saved != nullptr, tensor.name);
        const auto size = size_of(tensor.type);
        const bool sharded = tensor.placement == Placement::sharded;
        const auto begin = sharded ? tensor.begin : 0;
        const auto end = begin + (sharded ? tensor.count : *element_count(tensor.shape));
        for (const auto& piece : saved->pieces) {
            const auto from = std::max(begin, piece.begin), to = std::min(end, piece.begin + piece.count);
            if (from >= to) continue;
            auto& entry = wanted[{piece.file, piece.offset}];
            entry.tensor = saved;
            entry.piece = piece;
            entry.wishes.push_back({.begin = (from - piece.begin) * size,
                                    .end = (to - piece.begin) * size,
                                    .to = static_cast<std::byte*>(tensor.data) + (from - begin) * size});
        }
    }
    std::map<std::uint64_t, std::vector<WantedPiece>> by_file;
    for (auto& [place, piece] : wanted) by_file[place.first].push_back(std::move(piece));
    return by_file;
}

/// Receives the bytes of some pieces, one after the other, and copies each to where it is needed.
class PieceFiller {
  public:
    PieceFiller(std::string path, const std::vector<WantedPiece>& pieces) : path_(std::move(path)), pieces_(pieces) {}

    Result<void> take(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            MUSTER_CHECK(next_ < pieces_.size(), next_, pieces_.size());
            const auto& wanted = pieces_[next_];
            const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), wanted.size_bytes() - at_));
            sum_ = crc32c(part, sum_);
            for (const auto& wish : wanted.wishes) copy(part, wish);
            at_ += part.size();
            bytes = bytes.subspan(part.size());
            if (at_ < wanted.size_bytes()) break;
            if (sum_ != wanted.piece.crc32c) {
                return Error{Errc::bad_frame, cat(path_, ": tensor ", wanted.tensor->name, " is damaged (checksum)")};
            }
            ++next_;
            at_ = 0;
            sum_ = 0;
        }
        return {};
    }

  private:
    void copy(std::span<const std::byte> part, const Wish& wish) const {
        const auto from = std::max(wish.begin, at_), to = std::min(wish.end, at_ + part.size());
        if (from < to) std::memcpy(wish.to + (from - wish.begin), part.data() + (from - at_), to - from);
    }

    std::string path_;
    const std::vector<WantedPiece>& pieces_;
    std::size_t next_ = 0;  // index of the current piece
    std::uint64_t at_ = 0;  // bytes received of it
    std::uint32_t sum_ = 0;
};

/// Joins adjacent pieces into one range, so that the disk gets long reads.
std::vector<ByteRange> ranges_of(const std::vector<WantedPiece>& pieces) {
    std::vector<ByteRange> ranges;
    for (const auto& wanted : pieces) {
        const auto begin = wanted.piece.offset, end = begin + wanted.size_bytes();
        if (!ranges.empty() && ranges.back().end == begin) {
            ranges.back().end = end;
        } else {
            ranges.push_back({begin, end});
        }
    }
    return ranges;
}

}  // namespace

Result<void> match_model(const Manifest& manifest, const std::vector<StateTensor>& tensors) {
    const auto other = [](std::string text) {
        return Error{Errc::invalid_argument, cat("a checkpoint of another model: ", text)};
    };
    std::set<std::string> names;
    for (const auto& tensor : tensors) {
        names.insert(tensor.name);
        const auto* saved = find(manifest, tensor.name);
        if (saved == nullptr) return other(cat("it has no tensor '", tensor.name, "'"));
        if (saved->type != tensor.type || saved->shape != tensor.shape) {
            return other(cat("tensor '", tensor.name, "' is ", shape_text(saved->type, saved->shape), " there and ",
                             shape_text(tensor.type, tensor.shape), " here"));
        }
    }
    for (const auto& saved : manifest.tensors) {
        if (!names.contains(saved.name) && !is_rank_bytes(saved.name))
            return other(cat("it has a tensor '", saved.name, "', which the state does not have"));
    }
    return {};
}

std::vector<StateTensor> with_rank_bytes(const Manifest& manifest, CheckpointState& state, int rank, int world) {
    state.rank_bytes.clear();
    const auto* saved = find(manifest, rank_bytes_name(rank));
    if (saved != nullptr && saved->type == TensorType::u8 && manifest.files.size() == static_cast<std::size_t>(world))
        state.rank_bytes.resize(*element_count(saved->shape));
    return tensors_of(state, rank);
}

Result<void> fill_tensors(const std::string& place, const Manifest& manifest, const std::vector<StateTensor>& tensors,
                          const FileSource& source) {
    auto wanted = wanted_pieces(manifest, tensors);
    for (std::uint64_t file = 0; file < manifest.files.size(); ++file) {
        const auto& pieces = wanted[file];
        PieceFiller filler(cat(place, manifest.files[file].name), pieces);
        auto read = source(file, ranges_of(pieces), [&](auto bytes) { return filler.take(bytes); });
        if (!read) return read;
    }
    return {};
}

Result<void> load_tensors(const std::string& folder, const Manifest& manifest,
                          const std::vector<StateTensor>& tensors) {
    return fill_tensors(cat(folder, '/'), manifest, tensors,
                        [&](std::uint64_t file, const std::vector<ByteRange>& ranges, const ByteSink& sink) {
                            if (ranges.empty()) return Result<void>();
                            return read_ranges(cat(folder, '/', manifest.files[file].name), ranges, sink);
                        });
}

}  // namespace muster::runtime
