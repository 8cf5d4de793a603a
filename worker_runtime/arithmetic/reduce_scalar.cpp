#include "worker_runtime/arithmetic/reduce_instruction_sets.h"

namespace {
// The registers of every 64-bit processor; the compiler splits the vectors if they are too large.
constexpr int vector_bytes = 16;
}  // namespace

#include "worker_runtime/arithmetic/reduce_formats_body.h"

namespace {
using F16 = SoftwareF16;

/// Here a check costs as much as the replacement.
template <class V>
MUSTER_INLINE bool any_nan(V /*a*/, V /*b*/) {
    return true;
}
}  // namespace

#include "worker_runtime/arithmetic/reduce_kernels_body.h"

namespace muster::runtime {

void reduce_scalar(const Reduction& reduction) {
    reduce_here(reduction);
}

}  // namespace muster::runtime
