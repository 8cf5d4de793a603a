// The file that one rank adds to a checkpoint: a safetensors file whose __metadata__ has everything needed to assemble
// the checkpoint. So any process can build the manifest from the files alone.
//
//   muster_version 1 | muster_step | muster_round | muster_job | muster_rank | muster_world
//   muster_opening | muster_save | muster_directory   identify the save
//   muster_values      {"key": "text", ...}, those of rank 0
//   muster_rank_value  text
//   muster_pieces      {"NAME": {"tensor": "...", "shape": [...], "begin": N}, ...}, for tensors in several files
//   muster_crc32c      8 hexadecimal digits for each tensor, in the order of their bytes
//
// If the file has only a part of a tensor, the part is stored with one dimension, as "NAME[BEGIN:END]".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/format/pieces.h"

namespace muster::runtime {

/// The tensors of a file begin at a multiple of this, so that direct I/O can write and read them.
inline constexpr std::size_t file_alignment = 4096;

/// Returns `bytes`, rounded up to a size that direct I/O accepts.
constexpr std::uint64_t in_whole_blocks(std::uint64_t bytes) {
    return (bytes + file_alignment - 1) / file_alignment * file_alignment;
}

struct StoredPiece {
    Piece piece;
    std::uint64_t offset = 0;  ///< bytes from the beginning of the file
    std::uint32_t crc32c = 0;  ///< checksum of its bytes

    friend bool operator==(const StoredPiece&, const StoredPiece&) = default;
};

struct RankFile {
    std::int64_t step = 0;
    std::int64_t round = 0;
    std::string job;
    int rank = 0;
    int world = 1;
    std::map<std::string, std::string> values;  ///< those of rank 0
    std::string rank_value;
    std::string opening;              ///< token of the opening of the directory
    std::uint64_t save = 0;           ///< the number of the save in that opening
    std::string directory_word;       ///< identifies the directory (identity.h)
    std::vector<StoredPiece> pieces;  ///< in the order of their bytes
    std::uint64_t data_begin = 0;     ///< size of the header
    std::uint64_t size_bytes = 0;     ///< size of the whole file

    friend bool operator==(const RankFile&, const RankFile&) = default;
};

/// Returns a name such as "rank_00003.safetensors".
std::string rank_file_name(int rank);

/// Sorts the pieces (larger elements first, so that all are aligned) and assigns their offsets. The checksums are 0;
/// afterwards only their values may change.
void lay_out(RankFile& file, std::vector<Piece> pieces);

/// Returns the first data_begin bytes of the file.
std::string encode_head(const RankFile& file);

/// Parses the first bytes (data_begin or more) of a file of `file_bytes`. bad_frame has the reason.
Result<RankFile> parse_rank_file(std::string_view head, std::uint64_t file_bytes);

/// Parses the file in `memory` and checks the checksum of every piece. bad_frame has the reason.
Result<RankFile> read_whole(std::span<const std::byte> memory);

}  // namespace muster::runtime
