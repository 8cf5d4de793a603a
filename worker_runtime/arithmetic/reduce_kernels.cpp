#include "worker_runtime/arithmetic/reduce_kernels.h"

#include "rendezvous/base/check.h"
#include "worker_runtime/arithmetic/reduce_instruction_sets.h"

namespace muster::runtime {

namespace {

using Reduce = void (*)(const Reduction&);

Reduce reduce_of(InstructionSet set) {
    switch (set) {
#if defined(__x86_64__)
        case InstructionSet::avx512: return reduce_avx512;
        case InstructionSet::avx2: return reduce_avx2;
#endif
        default: return reduce_scalar;
    }
}

}  // namespace

void reduce(const Reduction& reduction) {
    MUSTER_CHECK(reduction.input_count >= 1, reduction.input_count);
    MUSTER_CHECK(!multiplies(reduction.reduce) || is_floating(reduction.type), name(reduction.type));
    MUSTER_CHECK(!is_bitwise(reduction.reduce) || !is_floating(reduction.type), name(reduction.type));
    static const Reduce chosen = reduce_of(chosen_instruction_set());
    chosen(reduction);
}

namespace {

template <class Scalar>
Scalar reciprocal_in(const double* weights, int count) {
    Scalar sum = static_cast<Scalar>(weights[0]);
    for (int i = 1; i < count; ++i) sum += static_cast<Scalar>(weights[i]);
    return Scalar{1} / sum;
}

}  // namespace

double reciprocal_of(DataType type, const double* weights, int count) {
    return type == DataType::f64 ? reciprocal_in<double>(weights, count) : reciprocal_in<float>(weights, count);
}

}  // namespace muster::runtime
