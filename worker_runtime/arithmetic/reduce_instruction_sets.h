// reduce() for each instruction set, all with the same bits. reduce_kernels.cpp selects one of them; tests compare
// all.
#pragma once

#include "worker_runtime/arithmetic/instruction_set.h"
#include "worker_runtime/arithmetic/reduce_kernels.h"

namespace muster::runtime {

/// For every processor of the architecture.
void reduce_scalar(const Reduction& reduction);

// Only for processors with these instructions: see supports().
#if defined(__x86_64__)
void reduce_avx2(const Reduction& reduction);
void reduce_avx512(const Reduction& reduction);
#endif

}  // namespace muster::runtime
