// The part of muster.h with further element types and reductions; all of it since version 9. Include muster.h.
#ifndef MUSTER_MUSTER_REDUCTIONS_H
#define MUSTER_MUSTER_REDUCTIONS_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// Further types of every operation. Bool and complex numbers need none: reduce bool as MUSTER_U8, of which MUSTER_MAX
// is the logical or and MUSTER_MIN the logical and; and a complex number as two real ones (sums, averages).
enum {
    MUSTER_I8 = 8,
    MUSTER_U16 = 9,
    MUSTER_I16 = 10,
    MUSTER_U32 = 11,
    MUSTER_U64 = 12,
};

// Further reductions. Products run in rank order, those of f16 and bf16 in f32; those of integers wrap.
enum {
    MUSTER_PRODUCT = 4,
    MUSTER_BAND = 5,  // bitwise: integer types only, and not over NCCL
    MUSTER_BOR = 6,
    MUSTER_BXOR = 7,
    MUSTER_PREMUL_SUM = 8,  // only by the functions below and muster_reduce_premul(), which have this rank's factor
};

// The sum over all ranks of `factor` times the rank's elements, for floating types. Each rank may have another factor.
// It is used in the precision of the sum: double for MUSTER_F64, else float. Over NCCL it is rounded to the type of
// the elements.
muster_status muster_all_reduce_premul(muster_communicator* communicator, void* data, size_t count, int type,
                                       double factor, int64_t timeout_ms, muster_work** work);

// The same of muster_reduce_scatter(): the pieces of `input` are multiplied by this rank's `factor`, without a change
// to `input`.
muster_status muster_reduce_scatter_premul(muster_communicator* communicator, const void* input, void* output,
                                           size_t count, int type, double factor, int64_t timeout_ms,
                                           muster_work** work);

#ifdef __cplusplus
}
#endif

#endif
