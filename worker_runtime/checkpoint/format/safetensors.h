// The safetensors format, as in its reference implementation (github.com/safetensors/safetensors):
//
//   u64 N, little-endian | N bytes of JSON, padded with blanks | the tensors' bytes, without gaps
//   {"__metadata__": {"key": "text", ...},
//    "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...}
//
// Offsets count from the end of the JSON. There may be no other bytes before, between or after tensors, and no name may
// occur twice. The input is untrusted, so each of these rules is checked, and no number is trusted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/tensor_type.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

/// The limit of the reference implementation.
inline constexpr std::uint64_t safetensors_header_bytes_max = 100'000'000;
/// The size of N.
inline constexpr std::size_t safetensors_length_bytes = 8;

struct TensorEntry {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;   ///< empty: a scalar, one element
    std::uint64_t begin = 0, end = 0;  ///< bytes from the end of the header

    friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct SafetensorsHeader {
    std::vector<TensorEntry> tensors;  ///< in the order of their bytes
    std::map<std::string, std::string> metadata = {};

    friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

/// Returns the number of elements; nothing if it overflows or a dimension is negative.
std::optional<std::uint64_t> element_count(const std::vector<std::int64_t>& shape);

/// Builds the first bytes of a file: N, the JSON, and padding so that the tensors begin at a multiple of `alignment`.
/// The tensors must be adjacent. Names and texts must be UTF-8.
std::string make_safetensors_header(const SafetensorsHeader& header, std::size_t alignment);

/// Returns N + 8, from the first 8 bytes of a file of `file_bytes`: the size of the head that parse_safetensors()
/// needs. bad_frame: N is too large or missing.
Result<std::uint64_t> safetensors_data_begin(std::string_view first_bytes, std::uint64_t file_bytes);

/// Parses the head of a file. bad_frame has the reason and names the tensor. unsupported: a dtype is unknown to this
/// version.
Result<SafetensorsHeader> parse_safetensors(std::string_view head, std::uint64_t file_bytes);

}  // namespace muster::runtime
