// The part of muster.h for your own exchange (a hook): it turns a bucket's gradients into the average, instead of a
// reducer's `wire`. Include muster.h.
#ifndef MUSTER_MUSTER_EXCHANGE_H
#define MUSTER_MUSTER_EXCHANGE_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- exchanges (details in bucket_exchange.h); since version 5 ----
//
// An exchange does not communicate. It returns the next collective and does the arithmetic around it. The library fills
// in the structures below, including their size.

// The place of a parameter's gradient in its bucket, in elements. This structure never grows.
typedef struct muster_bucket_slice {
    int parameter;
    size_t offset;
    size_t count;
} muster_bucket_slice;

typedef struct muster_bucket {
    size_t size;
    size_t index;     // position in the order of launches, the same on all ranks
    void* gradients;  // `count` elements of `type`; the padding between slices is zero
    size_t count;
    int type;
    float samples;  // this rank's weight in the average; 0 if it has no samples: keep residuals unchanged then
    uint64_t step;  // number of steps before this one; undefined in prepare(), as is `samples`
    const muster_bucket_slice* slices;
    size_t slice_count;
    void* ready;  // on a GPU: a CUDA event after the work that makes the gradients; the first collective waits for it
} muster_bucket;

enum {
    MUSTER_NEXT_NONE = 0,  // the bucket is done
    MUSTER_NEXT_ALL_REDUCE = 1,
    MUSTER_NEXT_ALL_REDUCE_WEIGHTED = 2,
    MUSTER_NEXT_REDUCE_SCATTER = 3,
    MUSTER_NEXT_ALL_GATHER = 4,
    MUSTER_NEXT_BROADCAST = 5,
    MUSTER_NEXT_ALL_TO_ALL = 6,
};

// A collective with the arguments of the function of that name. `output` is its `data` if it has a single buffer. The
// memory must stay valid and untouched until the bucket's next stage.
typedef struct muster_next {
    size_t size;
    int collective;
    int type;
    const void* input;
    void* output;
    size_t count;
    int reduce;
    int root;
    float weight;
    void* after;  // on a GPU: the CUDA event after which the input is complete; NULL: complete, or the gradients
} muster_next;

// One thread at a time calls these functions, with `argument`. They must neither let a C++ exception out nor call the
// reducer. An error status or an invalid collective ends the communicator, so that all ranks see the failure. If the
// communicator serves more than training, give such a reducer its own (muster_communicator_split()).
struct muster_exchange {
    size_t size;
    const char* name;  // with all settings, equal on all ranks, such as "top 1 %"
    void* argument;
    // Runs one stage of a bucket: stage 0 when its gradients are ready, stage k when its k-th collective is over. Sets
    // `next` (zero except its size) to the next collective. With MUSTER_NEXT_NONE the bucket holds the average.
    muster_status (*advance)(void* argument, const muster_bucket* bucket, int stage, muster_next* next);
    // The number of collectives of this bucket, 0 to 64; the same on all ranks. NULL: one.
    int (*collective_count)(void* argument, const muster_bucket* bucket);
    // Called at the start, and whenever the buckets were made again. Allocate memory here (muster_allocate(), with the
    // same calls on all ranks). Keep state by parameter, because buckets change. NULL: nothing to do.
    muster_status (*prepare)(void* argument, const muster_bucket* const* buckets, size_t bucket_count);
    // For checkpoints (muster_reducer_keep()). keep() writes this rank's state to `to`, unless it is NULL, and returns
    // its size; the size is the same both times. restore() takes it back and returns 0 if the size is wrong. Set both
    // or neither. NULL: no state.
    size_t (*keep)(void* argument, void* to);
    int (*restore)(void* argument, const void* from, size_t size);
};

#ifdef __cplusplus
}
#endif

#endif
