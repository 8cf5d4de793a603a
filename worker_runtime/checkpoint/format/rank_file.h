// The one file that a rank adds to a checkpoint: a safetensors file that also says, in its __metadata__, all that is
// needed to put the checkpoint together. So a manifest can be made from the files alone, by whoever is left.
//
//   muster_version 1 | muster_step | muster_round | muster_job | muster_rank | muster_world
//   muster_opening | muster_save | muster_directory   which save it is of, to the last detail
//   muster_values      {"key": "text", ...}, rank 0's
//   muster_rank_value  text
//   muster_pieces      {"NAME": {"tensor": "...", "shape": [...], "begin": N}, ...}, for tensors that are in several
//   files muster_crc32c      8 hexadecimal digits for each tensor, in the order of their bytes
//
// A tensor of which the file has only a part is stored with one dimension, under the name "NAME[BEGIN:END]".
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

/// A file's tensors begin at a multiple of this, so that they can be written and read past the page cache.
inline constexpr std::size_t file_alignment = 4096;

/// `bytes`, rounded up to what can be written or read past the page cache.
constexpr std::uint64_t in_whole_blocks(std::uint64_t bytes) {
    return (bytes + file_alignment - 1) / file_alignment * file_alignment;
}

struct StoredPiece {
    Piece piece;
    std::uint64_t offset = 0;  ///< bytes from the file's begin
    std::uint32_t crc32c = 0;  ///< of its bytes

    friend bool operator==(const StoredPiece&, const StoredPiece&) = default;
};

struct RankFile {
    std::int64_t step = 0;
    std::int64_t round = 0;
    std::string job;
    int rank = 0;
    int world = 1;
    std::map<std::string, std::string> values;  ///< rank 0's
    std::string rank_value;
    std::string opening;              ///< of the directory, a word that no other has
    std::uint64_t save = 0;           ///< the number of the save in that opening
    std::string directory_word;       ///< which directory it is of (identity.h)
    std::vector<StoredPiece> pieces;  ///< in the order of their bytes
    std::uint64_t data_begin = 0;     ///< bytes of the header
    std::uint64_t size_bytes = 0;     ///< of the whole file

    friend bool operator==(const RankFile&, const RankFile&) = default;
};

/// "rank_00003.safetensors".
std::string rank_file_name(int rank);

/// Puts the pieces into an order (larger elements first, so that all are aligned) and gives each its place. The
/// checksums are 0; only their values may change afterwards.
void lay_out(RankFile& file, std::vector<Piece> pieces);

/// The first data_begin bytes of the file.
std::string encode_head(const RankFile& file);

/// From that many bytes of a file of `file_bytes`. bad_frame: what is wrong.
Result<RankFile> parse_rank_file(std::string_view head, std::uint64_t file_bytes);

/// The file that lies in `memory`, when every piece of it has its checksum. bad_frame: what is wrong.
Result<RankFile> read_whole(std::span<const std::byte> memory);

}  // namespace muster::runtime
