// Selects the instruction set for arithmetic on arrays. The code is compiled once for each set (muster_instruction_sets
// in CMakeLists.txt), and the set is selected at run time. All sets give the same bits.
#pragma once

#include <string_view>

namespace muster::runtime {

enum class InstructionSet {
    scalar,  ///< The baseline of the architecture.
    avx2,    ///< AVX2 and F16C
    avx512,  ///< AVX-512 F, BW and VL, and F16C
};

/// True if the processor and the operating system support the whole set.
bool supports(InstructionSet set);

/// Returns the best supported set, or the lower one in MUSTER_SIMD. The same in every call.
InstructionSet chosen_instruction_set();

/// Returns its name, as in MUSTER_SIMD: "avx512", "avx2" or "scalar".
std::string_view instruction_set();

}  // namespace muster::runtime
