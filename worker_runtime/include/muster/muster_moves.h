// The part of muster.h for collectives that have a root, or pieces of different sizes. Include muster.h, which
// describes the arguments that all operations have. Since version 9.
#ifndef MUSTER_MUSTER_MOVES_H
#define MUSTER_MUSTER_MOVES_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// Collects every rank's `input` of `count` at the root: `output` has one piece per rank there, in rank order. Other
// ranks' `output` is not used, and may be NULL. In place if the root's `input` is its piece of `output`.
muster_status muster_gather(muster_communicator* communicator, const void* input, void* output, size_t count, int type,
                            int root, int64_t timeout_ms, muster_work** work);

// `input`: at the root one piece of `count` per rank, in rank order; not used on other ranks, and may be NULL there.
// `output`: this rank's piece. In place if the root's `output` is its piece of `input`.
muster_status muster_scatter(muster_communicator* communicator, const void* input, void* output, size_t count, int type,
                             int root, int64_t timeout_ms, muster_work** work);

// The root's `output` receives the reduction of all ranks' `input`, with the bits of muster_all_reduce(), except over
// NCCL. Other ranks' `output` is not used, and may be NULL. At the root both may be the same memory.
muster_status muster_reduce(muster_communicator* communicator, const void* input, void* output, size_t count, int type,
                            int reduce, int root, int64_t timeout_ms, muster_work** work);

// The same of a sum to which this rank's `input` comes multiplied by `factor`, as in muster_all_reduce_premul().
muster_status muster_reduce_premul(muster_communicator* communicator, const void* input, void* output, size_t count,
                                   int type, double factor, int root, int64_t timeout_ms, muster_work** work);

// Elements for each rank and from each: arrays with one number per rank, which are copied. `offsets` count elements
// from the beginning of the buffer; NULL: each part lies behind the one before.
typedef struct muster_parts {
    size_t size;
    const size_t* sent_counts;
    const size_t* sent_offsets;
    const size_t* expected_counts;
    const size_t* expected_offsets;
} muster_parts;

// Part r of `input` goes to rank r, part r of `output` comes from rank r; a part may be empty. Parts of `output` must
// not overlap. The ranks first compare what they send and expect: if two contradict each other, all ranks fail with
// MUSTER_INVALID_ARGUMENT, the message has both numbers, and the communicator goes on. Ranks that run different
// operations get the same code, but theirs is dead: muster_communicator_status() tells which it was.
muster_status muster_all_to_all_uneven(muster_communicator* communicator, const void* input, void* output, int type,
                                       const muster_parts* parts, int64_t timeout_ms, muster_work** work);

#ifdef __cplusplus
}
#endif

#endif
