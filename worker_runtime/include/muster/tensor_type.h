// The element types of a checkpoint: those of safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "muster/data_type.h"

namespace muster {

/// Little-endian. The values are part of the C API: never renumber them.
enum class TensorType : std::uint8_t {
    f32 = 0,  // the types of DataType have its values
    f64 = 1,
    f16 = 2,
    bf16 = 3,
    i32 = 4,
    i64 = 5,
    u8 = 6,
    boolean = 7,
    i8 = 8,
    u16 = 9,
    i16 = 10,
    u32 = 11,
    u64 = 12,
    f8_e4m3 = 13,
    f8_e5m2 = 14,
};
inline constexpr int tensor_type_count = 15;

/// Bytes of one element.
constexpr std::size_t size_of(TensorType type) {
    constexpr std::size_t sizes[tensor_type_count] = {4, 8, 2, 2, 4, 8, 1, 1, 1, 2, 2, 4, 8, 1, 1};
    return sizes[static_cast<int>(type)];
}

/// The name in safetensors, such as "F32".
constexpr std::string_view name(TensorType type) {
    constexpr std::string_view names[tensor_type_count] = {"F32", "F64", "F16",  "BF16",    "I32",
                                                           "I64", "U8",  "BOOL", "I8",      "U16",
                                                           "I16", "U32", "U64",  "F8_E4M3", "F8_E5M2"};
    return names[static_cast<int>(type)];
}

/// The type with that name, or nothing if it is unknown.
constexpr std::optional<TensorType> tensor_type_named(std::string_view text) {
    for (int i = 0; i < tensor_type_count; ++i) {
        if (name(static_cast<TensorType>(i)) == text) return static_cast<TensorType>(i);
    }
    return std::nullopt;
}

constexpr TensorType tensor_type(DataType type) {
    return static_cast<TensorType>(type);
}

}  // namespace muster
