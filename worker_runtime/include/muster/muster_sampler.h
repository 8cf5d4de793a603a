// The part of muster.h that deals the samples of a data set to the ranks. Include muster.h.
#ifndef MUSTER_MUSTER_SAMPLER_H
#define MUSTER_MUSTER_SAMPLER_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- data order: distributed_sampler.h and elastic_sampler.h have the whole story ----
//
// Indices are copied into memory of the caller's, `capacity` of them at most; `*count`, unless NULL, gets how many
// there are. Too small: MUSTER_LIMIT_EXCEEDED, and nothing is copied. `indices` NULL: only asks.

typedef struct muster_distributed_sampler muster_distributed_sampler;

typedef struct muster_distributed_sampler_options {
    size_t size;
    int64_t sample_count;
    int world_size;  // 0: 1
    int rank;
    uint64_t seed;   // a negative one of torch's is what it is modulo 2^64
    int sequential;  // 1: no shuffling
    int drop_last;   // 1: what does not divide among the ranks is left out, not repeated
} muster_distributed_sampler_options;

// The same indices as torch.utils.data.DistributedSampler's.
muster_status muster_distributed_sampler_make(const muster_distributed_sampler_options* options,
                                              muster_distributed_sampler** sampler);
muster_status muster_distributed_sampler_set_epoch(muster_distributed_sampler* sampler, uint64_t epoch);
// Indices of one pass on this rank.
muster_status muster_distributed_sampler_size(muster_distributed_sampler* sampler, uint64_t* count);
// Begins a pass, where `indices` is not NULL.
muster_status muster_distributed_sampler_indices(muster_distributed_sampler* sampler, int64_t* indices, size_t capacity,
                                                 size_t* count);
// Has a second pass begun in the order of the first, without muster_distributed_sampler_set_epoch() before?
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
    int64_t batch_size;  // over all ranks
    uint64_t seed;
    int order;
    int deal;
    int tail;
} muster_elastic_sampler_options;

// Places first .. first + count - 1 of the epoch's order.
typedef struct muster_sample_step {
    size_t size;
    uint64_t epoch;
    uint64_t first;
    uint64_t count;
    int ends_epoch;
} muster_sample_step;

muster_status muster_elastic_sampler_make(const muster_elastic_sampler_options* options,
                                          muster_elastic_sampler** sampler);
// The step at the cursor; the same one until it is committed.
muster_status muster_elastic_sampler_next(muster_elastic_sampler* sampler, muster_sample_step* step);
// `*later` becomes the step behind `step`; they may be the same structure.
muster_status muster_elastic_sampler_after(muster_elastic_sampler* sampler, const muster_sample_step* step,
                                           muster_sample_step* later);
// The samples of `step` for `rank` of `world_size`.
muster_status muster_elastic_sampler_indices(muster_elastic_sampler* sampler, const muster_sample_step* step, int rank,
                                             int world_size, int64_t* indices, size_t capacity, size_t* count);
// All ranks have seen the samples of `step`. MUSTER_REFUSED where it is not the step at the cursor.
muster_status muster_elastic_sampler_commit(muster_elastic_sampler* sampler, const muster_sample_step* step);
muster_status muster_elastic_sampler_set_batch_size(muster_elastic_sampler* sampler, int64_t batch_size);
// From the cursor to the end of its epoch.
muster_status muster_elastic_sampler_steps_left(muster_elastic_sampler* sampler, uint64_t* steps);
// One line of JSON, for a checkpoint.
muster_status muster_elastic_sampler_state(muster_elastic_sampler* sampler, char* text, size_t capacity,
                                           size_t* needed);
muster_status muster_elastic_sampler_load_state(muster_elastic_sampler* sampler, const char* state);
// For the random numbers that sample `index` needs in `epoch`, whichever rank has it.
muster_status muster_elastic_sampler_sample_seed(muster_elastic_sampler* sampler, uint64_t epoch, uint64_t index,
                                                 uint64_t* seed);
muster_status muster_elastic_sampler_release(muster_elastic_sampler* sampler);

#ifdef __cplusplus
}
#endif

#endif
