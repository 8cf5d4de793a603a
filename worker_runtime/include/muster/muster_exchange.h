// The part of muster.h for an exchange of your own (a hook): how a bucket's gradients become the average, in place of a
// reducer's `wire`. Include muster.h.
#ifndef MUSTER_MUSTER_EXCHANGE_H
#define MUSTER_MUSTER_EXCHANGE_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- exchanges: bucket_exchange.h has the whole story; since version 5 ----
//
// An exchange does not communicate itself, but says which collective comes next, and does the arithmetic around it. The
// library fills in its structures, and their size.

// Where a parameter's gradient lies in its bucket, in elements. This structure never grows.
typedef struct muster_bucket_slice {
    int parameter;
    size_t offset;
    size_t count;
} muster_bucket_slice;

typedef struct muster_bucket {
    size_t size;
    size_t index;     // in the order of launches, the same on all ranks
    void* gradients;  // `count` elements of `type`; between slices lies padding, which is zero
    size_t count;
    int type;
    float samples;  // this rank's weight in the average; 0 when it only keeps the others company: hold back nothing new
                    // then
    uint64_t step;  // steps before this one; like `samples` of no meaning in prepare()
    const muster_bucket_slice* slices;
    size_t slice_count;
    void* ready;  // on a GPU: a CUDA event behind the work that makes the gradients; the first collective waits for it
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

// A collective with the arguments of the function of its name: `output` is its `data` where it has no other memory. The
// memory must stay valid, and untouched, until the bucket's next stage.
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
    void* after;  // on a GPU: the CUDA event behind which the input is complete; NULL: it is, or is the gradients
} muster_next;

// Functions get `argument`, are called by one thread at a time, and must neither let a C++ exception out nor call the
// reducer. What they return, unless MUSTER_OK, ends the communicator, so that all ranks learn of it, and so does a
// collective that cannot be: give such a reducer a communicator of its own (muster_communicator_split()) where more
// than training hangs on it.
struct muster_exchange {
    size_t size;
    const char* name;  // with all settings, equal on all ranks: "top 1 %"
    void* argument;
    // All of a step's stages, for each bucket: with 0 when its gradients are ready, with k when its k-th collective is
    // over. Says in `next`, which is zero but for its size, what comes then; at MUSTER_NEXT_NONE the bucket holds the
    // average.
    muster_status (*advance)(void* argument, const muster_bucket* bucket, int stage, muster_next* next);
    // How many collectives this bucket takes, 0 to 64; the same on all ranks. NULL: one.
    int (*collective_count)(void* argument, const muster_bucket* bucket);
    // New buckets, at the beginning and whenever they were made anew: take memory here (muster_allocate(), equally on
    // all ranks). What is remembered of gradients should be kept by parameter, since buckets change. NULL: nothing.
    muster_status (*prepare)(void* argument, const muster_bucket* const* buckets, size_t bucket_count);
    // For checkpoints (muster_reducer_keep()): writes what this rank remembers of the gradients, unless `to` is NULL,
    // and returns its size, both times the same; and takes it back, 0 where it is of another size. Both or neither.
    // NULL: nothing is remembered.
    size_t (*keep)(void* argument, void* to);
    int (*restore)(void* argument, const void* from, size_t size);
};

#ifdef __cplusplus
}
#endif

#endif
