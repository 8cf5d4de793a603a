// The safetensors format, as its reference implementation (github.com/safetensors/safetensors) has it:
//
//   u64 N, little-endian | N bytes of JSON, filled up with blanks | the tensors' bytes, one behind the other
//   {"__metadata__": {"key": "text", ...}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]},
//   ...}
//
// Offsets count from behind the JSON. Nothing may lie between tensors, before or behind them, and no name may come
// twice. What is read may come from anybody, so each of these is checked here, and no number is trusted.
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

/// What the reference implementation accepts.
inline constexpr std::uint64_t safetensors_header_bytes_max = 100'000'000;
/// The N in front.
inline constexpr std::size_t safetensors_length_bytes = 8;

struct TensorEntry {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;   ///< empty: one element
    std::uint64_t begin = 0, end = 0;  ///< bytes, from behind the header

    friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct SafetensorsHeader {
    std::vector<TensorEntry> tensors;  ///< in the order of their bytes
    std::map<std::string, std::string> metadata = {};

    friend bool operator==(const SafetensorsHeader&, const SafetensorsHeader&) = default;
};

/// The number of elements, or nothing where that is no number that fits, or a dimension is negative.
std::optional<std::uint64_t> element_count(const std::vector<std::int64_t>& shape);

/// The first bytes of a file: N, the JSON and blanks, so many that the tensors begin at a multiple of `alignment`.
/// Tensors must lie one behind the other. Names and texts must be UTF-8.
std::string make_safetensors_header(const SafetensorsHeader& header, std::size_t alignment);

/// N + 8 from the first 8 bytes of a file of `file_bytes`: how much parse_safetensors() wants to see. bad_frame where
/// that cannot be.
Result<std::uint64_t> safetensors_data_begin(std::string_view first_bytes, std::uint64_t file_bytes);

/// `head`: that much of the file. bad_frame: what is wrong, and with which tensor. unsupported: a dtype that we do not
/// know.
Result<SafetensorsHeader> parse_safetensors(std::string_view head, std::uint64_t file_bytes);

}  // namespace muster::runtime
