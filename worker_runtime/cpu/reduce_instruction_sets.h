// reduce() once for each instruction set, all with the same bits. For reduce_kernels.cpp, which chooses among them, and
// for tests, which compare them.
#pragma once

#include "worker_runtime/cpu/reduce_kernels.h"

namespace muster::runtime {

/// Runs on every processor of the architecture.
void reduce_scalar(const Reduction& reduction);

// Only where the processor has the instructions: supports() below.
#if defined(__x86_64__)
void reduce_avx2(const Reduction& reduction);    ///< AVX2 and F16C
void reduce_avx512(const Reduction& reduction);  ///< AVX-512 F, BW and VL
#endif

enum class InstructionSet { scalar, avx2, avx512 };

/// Has this processor (and operating system) what reduce_... of that name needs?
bool supports(InstructionSet set);

}  // namespace muster::runtime
