// The manifest makes a folder of rank files a checkpoint: one JSON file, written last.
//
//   {"crc32c": "...", "format": "muster checkpoint", "version": 1, "step": 120, "round": 7, "job": "...",
//    "files":   [{"name": "rank_00000.safetensors", "bytes": N, "crc32c": "..."}, ...],           one for each rank
//    "tensors": [{"name": "...", "dtype": "F32", "shape": [...],
//                 "pieces": [{"file": 0, "begin": 0, "count": 9, "offset": 4096, "crc32c": "..."}, ...]}, ...],
//    "values": {"key": "text", ...}, "rank_values": ["text", ...]}
//
// begin and count are elements of the tensor in row-major order; offset is their byte position in the file. The first
// checksum is that of the manifest's own text, with zeros in its place.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

namespace muster::runtime {

inline constexpr std::string_view manifest_name = "manifest.json";
/// More than 100,000 tensors in 10,000 files need.
inline constexpr std::uint64_t manifest_bytes_max = 1u << 30;

struct ManifestFile {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint32_t crc32c = 0;
    friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct ManifestPiece {
    std::uint64_t file = 0;  ///< index of the file: the rank that wrote it
    std::uint64_t begin = 0, count = 0, offset = 0;
    std::uint32_t crc32c = 0;
    friend bool operator==(const ManifestPiece&, const ManifestPiece&) = default;
};

struct ManifestTensor {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;
    std::vector<ManifestPiece> pieces;  ///< in order of `begin`; each element occurs once
    friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

struct Manifest {
    std::int64_t step = 0;
    std::int64_t round = 0;
    std::string job;
    std::vector<ManifestFile> files;      ///< in rank order
    std::vector<ManifestTensor> tensors;  ///< sorted by name
    std::map<std::string, std::string> values;
    std::vector<std::string> rank_values;  ///< in rank order
    friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Builds the manifest from the files of all ranks and the checksum of each. invalid_argument: they are not one
/// complete checkpoint: a rank is missing, files are of different saves, or the parts of a tensor have gaps, overlap or
/// disagree.
Result<Manifest> make_manifest(const std::vector<RankFile>& files, const std::vector<std::uint32_t>& checksums);

std::string encode_manifest(const Manifest& manifest);

/// bad_frame: the text is damaged or not a manifest; the error has the reason. Every number in the result has been
/// checked: pieces are inside their files and cover their tensors, and file names are those of rank_file_name().
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace muster::runtime
