// What the library's signatures do not say of an operation: many types move as bytes, bool and complex numbers are
// reduced as other types. A mark is the tag of the library's collectives, which all ranks
// compare before data moves.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <string>

#include "worker_runtime/torch/elements.h"

namespace muster::torch_backend {

/// By Combine.
inline constexpr const char* combine_names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                                "BAND", "BOR", "BXOR",    "PREMUL_SUM"};

struct Marked {
    c10d::OpType kind;
    at::ScalarType type;
    int combine = -1;  ///< of Combine; -1: none
};

/// Never 0, which is the mark of operations that the library's signatures describe.
std::uint32_t mark_of(const Marked& operation);

/// The tag of a message of a type that moves as bytes, so that the ranks compare the type, too. A tag that leaves no
/// room for it stays as it is.
std::uint32_t mark_of_message(at::ScalarType type, std::uint32_t tag);

/// The same text with every mark that it has in words.
std::string with_marks_explained(const std::string& text);

}  // namespace muster::torch_backend
