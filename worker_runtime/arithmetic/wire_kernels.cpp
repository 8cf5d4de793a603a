#include "worker_runtime/arithmetic/wire_kernels.h"

namespace muster::runtime {

namespace {

const WireKernels& kernels_of(InstructionSet set) {
    switch (set) {
#if defined(__x86_64__)
        case InstructionSet::avx512: return wire_avx512;
        case InstructionSet::avx2: return wire_avx2;
#endif
        default: return wire_scalar;
    }
}

}  // namespace

const WireKernels& wire_kernels() {
    static const WireKernels& chosen = kernels_of(chosen_instruction_set());
    return chosen;
}

}  // namespace muster::runtime
