// Reductions: what the library does by itself, what it does under another name, and what is done here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::torch_backend {

/// Types of which there is arithmetic somewhere; all others only move.
enum class Element : std::uint8_t {
    i8,
    u8,
    i16,
    u16,
    i32,
    u32,
    i64,
    u64,
    f16,
    bf16,
    f32,
    f64,
    c32,
    c64,
    c128,
    boolean
};

/// As torch numbers them.
enum class Combine : std::uint8_t { sum, avg, product, min, max, band, bor, bxor, premul_sum };

struct Reduction {
    Element element = Element::f32;
    Combine combine = Combine::sum;
    std::size_t element_bytes = 4;
    /// The library's type and reduction, if it has one with the same result; else the pieces are gathered.
    bool is_native = false;
    int type = 0;
    int reduce = 0;
    std::size_t native_per_element = 1;  ///< complex numbers are two
    double factor = 1;                   ///< of premul_sum
};

/// Nothing if there is no such reduction; `why` ends the sentence "SUM of float8: ..." with what to do.
std::optional<Reduction> plan_reduction(Element element, Combine combine, std::string& why);

/// Multiplies `count` elements by the factor; those of 16 bits are rounded once.
void scale(void* data, std::size_t count, const Reduction& reduction);

/// Reduces `pieces` arrays of `count` elements, `stride_bytes` apart, in order. f16 and bf16 in f32, rounded once.
void reduce_pieces(const void* pieces, std::size_t stride_bytes, int piece_count, void* output, std::size_t count,
                   const Reduction& reduction);

}  // namespace muster::torch_backend
