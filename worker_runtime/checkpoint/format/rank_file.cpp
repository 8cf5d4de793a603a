#include "worker_runtime/checkpoint/format/rank_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/json_text.h"
#include "worker_runtime/checkpoint/format/names.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

using Json = nlohmann::json;

constexpr int rank_file_version = 1;
constexpr std::size_t crc_digits = 8;

std::string stored_name(const Piece& piece) {
    return piece.whole() ? piece.tensor : cat(piece.tensor, '[', piece.begin, ':', piece.begin + piece.count, ']');
}

SafetensorsHeader header_of(const RankFile& file) {
    SafetensorsHeader header;
    Json parts = Json::object();
    std::string checksums;
    for (const auto& [piece, offset, crc] : file.pieces) {
        const auto name = stored_name(piece);
        const bool whole = piece.whole();
        const auto begin = offset - file.data_begin;
        header.tensors.push_back(
            {.name = name,
             .type = piece.type,
             .shape = whole ? piece.shape : std::vector<std::int64_t>{static_cast<std::int64_t>(piece.count)},
             .begin = begin,
             .end = begin + piece.size_bytes()});
        if (!whole) parts[name] = {{"tensor", piece.tensor}, {"shape", piece.shape}, {"begin", piece.begin}};
        checksums += crc_text(crc);
    }
    header.metadata = {{"format", "pt"},
                       {"muster_version", cat(rank_file_version)},
                       {"muster_step", cat(file.step)},
                       {"muster_round", cat(file.round)},
                       {"muster_job", file.job},
                       {"muster_rank", cat(file.rank)},
                       {"muster_world", cat(file.world)},
                       {"muster_opening", file.opening},
                       {"muster_save", cat(file.save)},
                       {"muster_directory", file.directory_word},
                       {"muster_values", Json(file.values).dump()},
                       {"muster_rank_value", file.rank_value},
                       {"muster_pieces", parts.dump()},
                       {"muster_crc32c", checksums}};
    return header;
}

Error bad_rank_file(std::string text) {
    return {Errc::bad_frame, std::move(text)};
}

/// The texts of a header's metadata. Each one that is read must exist.
class Metadata {
  public:
    explicit Metadata(const std::map<std::string, std::string>& texts) : texts_(texts) {}

    bool text(const char* key, std::string& value) {
        const auto found = texts_.find(key);
        if (found == texts_.end()) return fail(cat("no ", key, " in __metadata__: not a file of a muster checkpoint"));
        value = found->second;
        return true;
    }
    template <class T>
    bool number(const char* key, T low, T& value) {
        std::string digits;
        if (!text(key, digits)) return false;
        return (parse_number(digits, value) && value >= low) || fail(cat(key, " is '", digits, "'"));
    }
    bool json(const char* key, Json& value) {
        std::string body;
        if (!text(key, body)) return false;
        auto parsed = parse_json(body);
        if (!parsed || !parsed->is_object()) return fail(cat(key, " is not a JSON object"));
        value = std::move(*parsed);
        return true;
    }
    bool fail(std::string why) {
        if (trouble_.empty()) trouble_ = std::move(why);
        return false;
    }
    [[nodiscard]] const std::string& trouble() const { return trouble_; }

  private:
    const std::map<std::string, std::string>& texts_;
    std::string trouble_;
};

/// Returns the piece that `stored` is; without an entry in `parts` it is a whole tensor.
Result<Piece> piece_of(const TensorEntry& stored, const Json& parts) {
    Piece piece{.tensor = stored.name, .type = stored.type, .shape = stored.shape};
    piece.count = *element_count(stored.shape);
    const auto part = parts.find(stored.name);
    if (part == parts.end()) return piece;
    const auto fields = JsonObject(*part);
    if (!fields.text("tensor", piece.tensor) || !fields.shape("shape", piece.shape) ||
        !fields.number("begin", piece.begin)) {
        return bad_rank_file(cat("muster_pieces: the entry of ", stored.name, " is malformed"));
    }
    const auto elements = element_count(piece.shape);
    if (!elements || stored.shape.size() != 1 || piece.begin > *elements || piece.count > *elements - piece.begin) {
        return bad_rank_file(cat("muster_pieces: ", stored.name, " lies beyond the end of ", piece.tensor));
    }
    return piece;
}

}  // namespace

std::string rank_file_name(int rank) {
    return cat("rank_", in_digits(static_cast<std::uint64_t>(rank), 5), ".safetensors");
}

void lay_out(RankFile& file, std::vector<Piece> pieces) {
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return size_of(a.type) > size_of(b.type); });
    file.pieces.clear();
    for (auto& piece : pieces) file.pieces.push_back({.piece = std::move(piece)});
    file.data_begin = 0;
    const auto place = [&file] {
        file.size_bytes = file.data_begin;
        for (auto& stored : file.pieces) {
            stored.offset = file.size_bytes;
            file.size_bytes += stored.piece.size_bytes();
        }
    };
    place();
    file.data_begin = encode_head(file).size();  // its offsets are relative, so its size is final now
    place();
}

std::string encode_head(const RankFile& file) {
    return make_safetensors_header(header_of(file), file_alignment);
}

Result<RankFile> parse_rank_file(std::string_view head, std::uint64_t file_bytes) {
    auto data_begin = MUSTER_TRY(safetensors_data_begin(head, file_bytes));
    auto header = MUSTER_TRY(parse_safetensors(head, file_bytes));
    RankFile file;
    file.data_begin = data_begin;
    file.size_bytes = file_bytes;
    Metadata metadata(header.metadata);
    int written_by = 0;
    Json values, parts;
    std::string checksums;
    if (!metadata.number("muster_version", 1, written_by)) return bad_rank_file(metadata.trouble());
    if (written_by != rank_file_version)
        return Error{Errc::unsupported, cat("made by a newer muster (format ", written_by, ")")};
    if (!metadata.number<std::int64_t>("muster_step", 0, file.step) ||
        !metadata.number<std::int64_t>("muster_round", 0, file.round) || !metadata.text("muster_job", file.job) ||
        !metadata.number("muster_world", 1, file.world) || !metadata.number("muster_rank", 0, file.rank) ||
        !metadata.json("muster_values", values) || !metadata.text("muster_rank_value", file.rank_value) ||
        !metadata.json("muster_pieces", parts) || !metadata.text("muster_crc32c", checksums)) {
        return bad_rank_file(metadata.trouble());
    }
    // Files of early versions lack these.
    (void)metadata.text("muster_opening", file.opening);
    (void)metadata.number<std::uint64_t>("muster_save", 0, file.save);
    (void)metadata.text("muster_directory", file.directory_word);
    if (!JsonObject(values).texts(file.values)) return bad_rank_file("muster_values holds values that are not texts");
    if (file.rank >= file.world) return bad_rank_file(cat("muster_rank ", file.rank, " of a world of ", file.world));
    if (checksums.size() != crc_digits * header.tensors.size())
        return bad_rank_file("muster_crc32c has the wrong length");
    for (std::size_t i = 0; i < header.tensors.size(); ++i) {
        const auto& tensor = header.tensors[i];
        auto piece = MUSTER_TRY(piece_of(tensor, parts));
        StoredPiece stored{.piece = std::move(piece), .offset = data_begin + tensor.begin};
        if (!parse_crc(std::string_view(checksums).substr(i * crc_digits, crc_digits), stored.crc32c)) {
            return bad_rank_file("muster_crc32c is not hexadecimal");
        }
        file.pieces.push_back(std::move(stored));
    }
    return file;
}

Result<RankFile> read_whole(std::span<const std::byte> memory) {
    const std::string_view text(reinterpret_cast<const char*>(memory.data()), memory.size());
    auto file = parse_rank_file(text, memory.size());
    if (!file) return file;
    for (const auto& stored : file->pieces) {
        if (crc32c(memory.subspan(stored.offset, stored.piece.size_bytes())) != stored.crc32c) {
            return bad_rank_file(cat("tensor ", stored.piece.tensor, " is damaged (checksum)"));
        }
    }
    return file;
}

}  // namespace muster::runtime
