// reduce() for each instruction set, all with the same bits. reduce_kernels.cpp selects one of them; tests compare
// them.
#pragma once

#include "worker_runtime/arithmetic/instruction_set.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"

namespace muster::runtime {

/// Runs on every processor of the architecture.
void reduce_scalar(const Reduction& reduction);

// Only where the processor has the instructions: supports().
#if defined(__x86_64__)
void reduce_avx2(const Reduction& reduction);
void reduce_avx512(const Reduction& reduction);
#endif

}  // namespace muster::runtime
