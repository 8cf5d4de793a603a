// The element types of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster {

/// Little-endian. The values are part of signatures and flight records: never renumber them.
enum class DataType : std::uint8_t {
    f32 = 0,
    f64 = 1,
    f16 = 2,   ///< IEEE 754 binary16
    bf16 = 3,  ///< the upper half of an f32
    i32 = 4,
    i64 = 5,
    u8 = 6,
    // 7 is the bool of TensorType, whose numbers these are. Reduce it as u8: max is its logical or, min its and.
    i8 = 8,
    u16 = 9,
    i16 = 10,
    u32 = 11,
    u64 = 12,
};
/// Greater than every number of a type.
inline constexpr int data_type_count = 13;

constexpr bool is_data_type(int number) {
    return number >= 0 && number < data_type_count && number != 7;
}

/// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
    constexpr std::size_t sizes[data_type_count] = {4, 8, 2, 2, 4, 8, 1, 1, 1, 2, 2, 4, 8};
    return sizes[static_cast<int>(type)];
}

/// The name, such as "f32".
constexpr std::string_view name(DataType type) {
    constexpr std::string_view names[data_type_count] = {"f32",  "f64", "f16", "bf16", "i32", "i64", "u8",
                                                         "bool", "i8",  "u16", "i16",  "u32", "u64"};
    return names[static_cast<int>(type)];
}

constexpr bool is_floating(DataType type) {
    return type <= DataType::bf16;
}

}  // namespace muster
