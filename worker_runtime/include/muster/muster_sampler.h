// The part of muster.h that divides the samples of a data set among the ranks. Include muster.h.
#ifndef MUSTER_MUSTER_SAMPLER_H
#define MUSTER_MUSTER_SAMPLER_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- data order (details in distributed_sampler.h and elastic_sampler.h) ----
//
// Functions copy at most `capacity` indices into the caller's memory and set `*count`, unless NULL, to their number. If
// the memory is too small, they copy nothing and return MUSTER_LIMIT_EXCEEDED. With `indices` NULL they only set
// `*count`.

typedef struct muster_distributed_sampler muster_distributed_sampler;

typedef struct muster_distributed_sampler_options {
    size_t size;
    int64_t sample_count;
    int world_size;  // 0: 1
    int rank;
    uint64_t seed;   // pass a negative seed of torch modulo 2^64
    int sequential;  // 1: no shuffling
    int drop_last;   // 1: samples beyond a multiple of the world size are dropped; 0: others are repeated
} muster_distributed_sampler_options;

// The same indices as torch.utils.data.DistributedSampler's.
muster_status muster_distributed_sampler_make(const muster_distributed_sampler_options* options,
                                              muster_distributed_sampler** sampler);
muster_status muster_distributed_sampler_set_epoch(muster_distributed_sampler* sampler, uint64_t epoch);
// The number of indices of one pass on this rank.
muster_status muster_distributed_sampler_size(muster_distributed_sampler* sampler, uint64_t* count);
// Begins a pass if `indices` is not NULL.
muster_status muster_distributed_sampler_indices(muster_distributed_sampler* sampler, int64_t* indices, size_t capacity,
                                                 size_t* count);
// `*repeated`: 1 after a second pass began in the order of the first, without muster_distributed_sampler_set_epoch().
muster_status muster_distributed_sampler_order_repeated(muster_distributed_sampler* sampler, int* repeated);
muster_status muster_distributed_sampler_release(muster_distributed_sampler* sampler);

typedef struct muster_elastic_sampler muster_elastic_sampler;

enum {
    MUSTER_SAMPLES_TORCH = 0,
    MUSTER_SAMPLES_COMPUTED = 1,
    MUSTER_SAMPLES_SEQUENTIAL = 2,
};
enum { MUSTER_DEAL_STRIDED = 0, MUSTER_DEAL_CONTIGUOUS = 1 };
enum {
    MUSTER_TAIL_SHORT_BATCH = 0,
    MUSTER_TAIL_PAD = 1,
    MUSTER_TAIL_DROP = 2,
};

typedef struct muster_elastic_sampler_options {
    size_t size;
    int64_t sample_count;
    int64_t batch_size;  // samples per step over all ranks
    uint64_t seed;
    int order;
    int deal;
    int tail;
} muster_elastic_sampler_options;

// Positions first .. first + count - 1 of the epoch's order.
typedef struct muster_sample_step {
    size_t size;
    uint64_t epoch;
    uint64_t first;
    uint64_t count;
    int ends_epoch;
} muster_sample_step;

muster_status muster_elastic_sampler_make(const muster_elastic_sampler_options* options,
                                          muster_elastic_sampler** sampler);
// The step at the cursor. Returns the same step until it is committed.
muster_status muster_elastic_sampler_next(muster_elastic_sampler* sampler, muster_sample_step* step);
// Sets `*later` to the step after `step`; they may be the same structure.
muster_status muster_elastic_sampler_after(muster_elastic_sampler* sampler, const muster_sample_step* step,
                                           muster_sample_step* later);
// The sample indices of `step` for `rank` of `world_size`.
muster_status muster_elastic_sampler_indices(muster_elastic_sampler* sampler, const muster_sample_step* step, int rank,
                                             int world_size, int64_t* indices, size_t capacity, size_t* count);
// Call it when all ranks have seen the samples of `step`. MUSTER_REFUSED: `step` is not the step at the cursor.
muster_status muster_elastic_sampler_commit(muster_elastic_sampler* sampler, const muster_sample_step* step);
muster_status muster_elastic_sampler_set_batch_size(muster_elastic_sampler* sampler, int64_t batch_size);
// The number of steps from the cursor to the end of its epoch.
muster_status muster_elastic_sampler_steps_left(muster_elastic_sampler* sampler, uint64_t* steps);
// The state for a checkpoint: one line of JSON.
muster_status muster_elastic_sampler_state(muster_elastic_sampler* sampler, char* text, size_t capacity,
                                           size_t* needed);
muster_status muster_elastic_sampler_load_state(muster_elastic_sampler* sampler, const char* state);
// The seed of the random numbers for sample `index` in `epoch`. It does not depend on the rank.
muster_status muster_elastic_sampler_sample_seed(muster_elastic_sampler* sampler, uint64_t epoch, uint64_t index,
                                                 uint64_t* seed);
muster_status muster_elastic_sampler_release(muster_elastic_sampler* sampler);

#ifdef __cplusplus
}
#endif

#endif
