// Reductions: the library's type and operator for each of torch's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::torch_backend {

/// Types of which there is arithmetic; all others only move.
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
    Combine combine = Combine::sum;
    int type = 0;             ///< the library's
    int reduce = 0;           ///< the library's
    std::size_t parts = 1;    ///< the library's elements in one of torch's: complex numbers have two
    double factor = 1;        ///< of premul_sum
    bool is_renamed = false;  ///< true if the library cannot tell torch's type from another
};

/// Nothing if there is no such reduction; `why` ends the sentence "SUM of float8: ..." with what to do.
std::optional<Reduction> plan_reduction(Element element, Combine combine, std::string& why);

}  // namespace muster::torch_backend
