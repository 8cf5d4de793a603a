#include "worker_runtime/checkpoint/format/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/json_text.h"
#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view format = "muster checkpoint";
constexpr std::uint64_t manifest_version = 1;
constexpr std::string_view opening = R"({"crc32c":")";  // eight digits follow
constexpr std::string_view no_digits = "00000000";

std::uint32_t checksum(std::string_view text) {
    return crc32c(std::as_bytes(std::span(text)));
}

Error damaged(std::string why) {
    return {Errc::bad_frame, cat("manifest: ", why)};
}

/// Returns why the pieces do not cover the tensor exactly once inside their files; empty if they do.
std::string trouble_with(const ManifestTensor& tensor, const std::vector<ManifestFile>& files) {
    const auto elements = element_count(tensor.shape);
    std::uint64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, size_of(tensor.type), &bytes)) {
        return "has an invalid shape";
    }
    std::uint64_t at = 0;
    for (const auto& piece : tensor.pieces) {
        if (piece.begin < at) return cat("has element ", piece.begin, " in two places");
        if (piece.begin > at) return cat("lacks elements ", at, " to ", piece.begin - 1);
        if (piece.count > *elements - at) return "has more elements than its shape";
        at += piece.count;
        const auto size = piece.count * size_of(tensor.type);
        if (piece.file >= files.size()) return cat("lies in file ", piece.file, " of ", files.size());
        const auto& file = files[piece.file];
        if (piece.offset > file.bytes || size > file.bytes - piece.offset)
            return cat("lies beyond the end of ", file.name);
    }
    if (at != *elements) return cat("lacks elements ", at, " to ", *elements - 1);
    return {};
}

bool read_crc(const JsonObject& object, std::uint32_t& crc) {
    std::string digits;
    return object.text("crc32c", digits) && parse_crc(digits, crc);
}

bool read_piece(const Json& json, ManifestPiece& piece) {
    const JsonObject object(json);
    return object.number("file", piece.file) && object.number("begin", piece.begin) &&
           object.number("count", piece.count) && object.number("offset", piece.offset) &&
           read_crc(object, piece.crc32c);
}

/// Reads the elements of list `name`, each by `read` into a T.
template <class T, class Read>
bool read_list(const JsonObject& object, const char* name, std::vector<T>& all, Read read) {
    const auto* list = object.field(name);
    if (list == nullptr || !list->is_array()) return false;
    for (const auto& json : *list) {
        if (!read(json, all.emplace_back())) return false;
    }
    return true;
}

bool read_tensor(const Json& json, ManifestTensor& tensor) {
    const JsonObject object(json);
    std::string dtype;
    if (!object.text("name", tensor.name) || !object.text("dtype", dtype) || !object.shape("shape", tensor.shape)) {
        return false;
    }
    const auto type = tensor_type_named(dtype);
    if (!type) return false;
    tensor.type = *type;
    return read_list(object, "pieces", tensor.pieces, read_piece);
}

bool read_file(const Json& json, ManifestFile& file) {
    const JsonObject object(json);
    return object.text("name", file.name) && object.number("bytes", file.bytes) && read_crc(object, file.crc32c);
}

bool read_text(const Json& json, std::string& text) {
    if (!json.is_string()) return false;
    text = json.get<std::string>();
    return true;
}

Result<void> check(const Manifest& manifest) {
    for (std::size_t rank = 0; rank < manifest.files.size(); ++rank) {
        if (manifest.files[rank].name != rank_file_name(static_cast<int>(rank))) {
            return damaged(cat("file ", rank, " is called ", manifest.files[rank].name));
        }
    }
    if (manifest.files.empty() || manifest.files.size() != manifest.rank_values.size()) {
        return damaged("not as many files as ranks");
    }
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
        const auto& tensor = manifest.tensors[i];
        if (i > 0 && !(manifest.tensors[i - 1].name < tensor.name)) return damaged("tensors are not in order");
        if (auto trouble = trouble_with(tensor, manifest.files); !trouble.empty()) {
            return damaged(cat("tensor ", tensor.name, " ", trouble));
        }
    }
    return {};
}

}  // namespace

Result<Manifest> make_manifest(const std::vector<RankFile>& files, const std::vector<std::uint32_t>& checksums) {
    MUSTER_CHECK(!files.empty() && files.size() == checksums.size(), files.size(), checksums.size());
    const auto& first = files.front();
    Manifest manifest;
    manifest.step = first.step;
    manifest.round = first.round;
    manifest.job = first.job;
    manifest.values = first.values;
    std::map<std::string, ManifestTensor> tensors;
    for (std::size_t rank = 0; rank < files.size(); ++rank) {
        const auto& file = files[rank];
        const auto name = rank_file_name(static_cast<int>(rank));
        if (file.rank != static_cast<int>(rank) || file.world != static_cast<int>(files.size()) ||
            file.step != first.step || file.round != first.round || file.job != first.job ||
            file.opening != first.opening || file.save != first.save) {
            return Error{Errc::invalid_argument, cat(name, " is of another save than ", rank_file_name(0))};
        }
        manifest.files.push_back({.name = name, .bytes = file.size_bytes, .crc32c = checksums[rank]});
        manifest.rank_values.push_back(file.rank_value);
        for (const auto& [piece, offset, crc] : file.pieces) {
            auto& tensor = tensors[piece.tensor];
            if (tensor.pieces.empty()) {
                tensor.name = piece.tensor;
                tensor.type = piece.type;
                tensor.shape = piece.shape;
            } else if (tensor.type != piece.type || tensor.shape != piece.shape) {
                return Error{Errc::invalid_argument, cat("tensor ", piece.tensor, " has another type or shape on rank ",
                                                         rank, " than on rank ", tensor.pieces.front().file)};
            }
            tensor.pieces.push_back(
                {.file = rank, .begin = piece.begin, .count = piece.count, .offset = offset, .crc32c = crc});
        }
    }
    for (auto& [name, tensor] : tensors) {
        std::sort(tensor.pieces.begin(), tensor.pieces.end(),
                  [](const ManifestPiece& a, const ManifestPiece& b) { return a.begin < b.begin; });
        if (auto trouble = trouble_with(tensor, manifest.files); !trouble.empty()) {
            return Error{Errc::invalid_argument, cat("tensor ", name, " ", trouble)};
        }
        manifest.tensors.push_back(std::move(tensor));
    }
    return manifest;
}

std::string encode_manifest(const Manifest& manifest) {
    OrderedJson json = {{"crc32c", no_digits},           {"format", format},
                        {"version", manifest_version},   {"step", manifest.step},
                        {"round", manifest.round},       {"job", manifest.job},
                        {"files", OrderedJson::array()}, {"tensors", OrderedJson::array()}};
    for (const auto& file : manifest.files) {
        json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"crc32c", crc_text(file.crc32c)}});
    }
    for (const auto& tensor : manifest.tensors) {
        auto pieces = OrderedJson::array();
        for (const auto& piece : tensor.pieces) {
            pieces.push_back({{"file", piece.file},
                              {"begin", piece.begin},
                              {"count", piece.count},
                              {"offset", piece.offset},
                              {"crc32c", crc_text(piece.crc32c)}});
        }
        json["tensors"].push_back({{"name", tensor.name},
                                   {"dtype", name(tensor.type)},
                                   {"shape", tensor.shape},
                                   {"pieces", std::move(pieces)}});
    }
    json["values"] = manifest.values;
    json["rank_values"] = manifest.rank_values;
    auto text = json.dump() + "\n";
    MUSTER_CHECK(text.starts_with(opening), text.substr(0, opening.size()));
    return text.replace(opening.size(), no_digits.size(), crc_text(checksum(text)));
}

Result<Manifest> parse_manifest(std::string_view text) {
    std::uint32_t expected = 0;
    const auto digits = text.substr(std::min(opening.size(), text.size())).substr(0, no_digits.size());
    if (!text.starts_with(opening) || !parse_crc(digits, expected)) return damaged("does not begin with its checksum");
    auto summed = checksum(opening);
    summed = crc32c(std::as_bytes(std::span(no_digits)), summed);
    summed = crc32c(std::as_bytes(std::span(text.substr(opening.size() + no_digits.size()))), summed);
    auto json = parse_json(text);
    if (!json) return damaged("no valid JSON");
    const JsonObject object(*json);
    std::string kind;
    std::uint64_t written_by = 0;
    if (!object.text("format", kind) || kind != format || !object.number("version", written_by)) {
        return damaged("is not of a muster checkpoint");
    }
    if (summed != expected) return damaged(cat("its checksum is ", crc_text(summed), ", not ", digits));
    if (written_by != manifest_version)
        return Error{Errc::unsupported, cat("made by a newer muster (format ", written_by, ")")};
    Manifest manifest;
    const auto* values = object.field("values");
    if (!object.number("step", manifest.step) || !object.number("round", manifest.round) ||
        !object.text("job", manifest.job) || !read_list(object, "files", manifest.files, read_file) ||
        !read_list(object, "tensors", manifest.tensors, read_tensor) || values == nullptr ||
        !JsonObject(*values).texts(manifest.values) ||
        !read_list(object, "rank_values", manifest.rank_values, read_text)) {
        return damaged("a field is missing or malformed");
    }
    if (auto fine = check(manifest); !fine) return fine.error();
    return manifest;
}

}  // namespace muster::runtime
