// The part of muster.h that saves and loads checkpoints, and watches for preemption notices. Include muster.h.
#ifndef MUSTER_MUSTER_CHECKPOINT_H
#define MUSTER_MUSTER_CHECKPOINT_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- checkpoints: checkpoint.h has the whole story ----

// Types of tensors that only checkpoints know, beside those of operations.
enum {
    MUSTER_BOOL = 7,
    MUSTER_I8 = 8,
    MUSTER_U16 = 9,
    MUSTER_I16 = 10,
    MUSTER_U32 = 11,
    MUSTER_U64 = 12,
    MUSTER_F8_E4M3 = 13,
    MUSTER_F8_E5M2 = 14,
};
enum {
    MUSTER_REPLICATED = 0,  // every rank has all of it; rank 0's is saved, whole (`spread_replicas`)
    MUSTER_SHARDED = 1,     // every rank has a part, and the parts make up the whole
};
// While the save before is still being written.
enum {
    MUSTER_BUSY_DEFAULT = 0,  // in options: to skip; in a call: as the options say
    MUSTER_BUSY_SKIP = 1,     // leaves this one out, on all ranks, and says so in its report
    MUSTER_BUSY_WAIT = 2,
};

// A tensor as one rank has it, contiguous. This structure never grows.
typedef struct muster_tensor {
    const char* name;
    const int64_t* shape;  // of the whole tensor, `dimension_count` of them; NULL with 0: one element
    size_t dimension_count;
    int type;
    void* data;  // host memory: read by save before it returns, written by load
    int placement;
    uint64_t begin, count;  // MUSTER_SHARDED: which elements `data` has, in row-major order
} muster_tensor;

// A short text that is equal on all ranks. This structure never grows.
typedef struct muster_value {
    const char* key;
    const char* value;
} muster_value;

// All that must come back. Texts are UTF-8.
typedef struct muster_checkpoint_state {
    size_t size;
    const muster_tensor* tensors;
    size_t tensor_count;
    const muster_value* values;
    size_t value_count;
    const char* rank_value;  // this rank's own text, such as its random generators; NULL: ""
    const void* rank_bytes;  // this rank's own memory, such as a reducer's; copied before save returns; since version 3
    size_t rank_bytes_size;
} muster_checkpoint_state;

typedef struct muster_checkpointer muster_checkpointer;

typedef struct muster_checkpointer_options {
    size_t size;
    const char* directory;  // NULL or "": MUSTER_CHECKPOINT_DIR, which muster --checkpoint-dir sets
    int keep_last;          // 0: 2
    int64_t keep_every;     // also keeps steps that are a multiple; 0: none
    int when_busy;
    int64_t persist_timeout_ms;      // from save to all ranks' parts being on the disk; 0: 1,800,000
    int no_copies;                   // 1: copies in memory stay on their node
    uint64_t copy_bytes_per_second;  // that a rank sends of them to the next node at most, >= 65,536; 0: no limit
    // Since version 3. A disk of this host, where each rank's part goes first; NULL or "": MUSTER_CHECKPOINT_LOCAL_DIR,
    // which muster --checkpoint-local-dir sets.
    const char* local_directory;
    int shared_every;  // with one: of that many saves the first goes to `directory` too; 0: 1, all of them
    // Since version 6. 1: each replicated tensor of 1 MiB and more is one rank's, whole, and all ranks write at once.
    // Only for replicas that are equal to the last bit. The same on all ranks.
    int spread_replicas;
    // 1: save and snapshot compare the replicated tensors of all ranks by checksums first. MUSTER_INVALID_ARGUMENT
    // names the first tensor that differs, and the ranks.
    int verify_replicas;
} muster_checkpointer_options;

// A collective. MUSTER_ALREADY_EXISTS: another job has the directory. `options` may be NULL.
muster_status muster_checkpointer_open(muster_context* context, const muster_checkpointer_options* options,
                                       muster_checkpointer** checkpointer);

// A collective: copies this rank's share and returns; a thread writes it. How that ends comes with the reports.
muster_status muster_checkpointer_save(muster_checkpointer* checkpointer, int64_t step,
                                       const muster_checkpoint_state* state, int when_busy);

// The same without a disk, for the agents alone: of this node, and of the next one. Cheap enough for every step; after
// a failure the next round goes on from it. Left out on all ranks alike while another is under way, and without agents.
muster_status muster_checkpointer_snapshot(muster_checkpointer* checkpointer, int64_t step,
                                           const muster_checkpoint_state* state);
// Takes the memory for copies of this rank's share before the first save. MUSTER_LIMIT_EXCEEDED: there is too little.
muster_status muster_checkpointer_reserve(muster_checkpointer* checkpointer, const muster_checkpoint_state* state);
// The newest step of which the next node has a copy of this rank's share; -1: none.
muster_status muster_checkpointer_copied_step(muster_checkpointer* checkpointer, int64_t* step);

// A collective: fills the memory of `state`'s tensors from the newest checkpoint that is whole on all ranks. `*step`:
// its step; -1 where there is none. MUSTER_INVALID_ARGUMENT: the checkpoint is of another model, and the first tensor
// that differs is named. MUSTER_BAD_FRAME: there are some, but none is whole. The state's texts are not looked at.
muster_status muster_checkpointer_load(muster_checkpointer* checkpointer, const muster_checkpoint_state* state,
                                       int64_t* step);

// A collective: the same for those who have no tensors yet. `place` gets those of the checkpoint (names, types and
// shapes; valid during the call) and writes their `data`; it may make them shards. What it returns, unless MUSTER_OK,
// ends the load on all ranks. It must not use the checkpointer, nor let a C++ exception out. It may be called again,
// where a checkpoint turns out to be damaged.
muster_status muster_checkpointer_load_as_saved(muster_checkpointer* checkpointer,
                                                muster_status (*place)(void* argument, muster_tensor* tensors,
                                                                       size_t count),
                                                void* argument, int64_t* step);

// What the last load that found one brought besides tensors. A rank that the saved world had not gets "".
muster_status muster_checkpointer_loaded_value(muster_checkpointer* checkpointer, const char* key, char* text,
                                               size_t capacity, size_t* needed);
// The keys are counted from 0; MUSTER_NOT_FOUND behind the last.
muster_status muster_checkpointer_loaded_key(muster_checkpointer* checkpointer, size_t index, char* text,
                                             size_t capacity, size_t* needed);
muster_status muster_checkpointer_loaded_rank_value(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                                    size_t* needed);
// What this rank had as rank_bytes; 0 bytes in a world of another size. Until the next load, or the release; since
// version 3.
muster_status muster_checkpointer_loaded_rank_bytes(muster_checkpointer* checkpointer, const void** bytes,
                                                    size_t* size);
// Where the last load that found one took it from; since version 3.
enum {
    MUSTER_FROM_SHARED = 0,      // the directory that all hosts share
    MUSTER_FROM_MEMORY = 1,      // of the agents
    MUSTER_FROM_LOCAL_DISK = 2,  // of the hosts
};
muster_status muster_checkpointer_loaded_from(muster_checkpointer* checkpointer, int* from);
// Empty unless it came from the shared directory: parts in memory or on local disks have no one place.
muster_status muster_checkpointer_loaded_path(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                              size_t* needed);
// The newer ones that were passed over, each with the reason: a line each.
muster_status muster_checkpointer_loaded_skipped(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                                 size_t* needed);

// Waits until the save under way is on the disk or has failed. A failure: the newest save is not on the disk.
muster_status muster_checkpointer_finish(muster_checkpointer* checkpointer);

typedef struct muster_save_report {
    size_t size;
    int64_t step;
    int persisted;      // 1: the text that comes with it is the checkpoint's path; 0: why not
    uint64_t bytes;     // of this rank's share
    double blocked_ms;  // save kept this rank from training
    double persist_ms;  // from then until all ranks' parts were on the disk
} muster_save_report;

// Takes the saves that have ended since the last call; `*count` of them can then be read until the next call.
muster_status muster_checkpointer_take_reports(muster_checkpointer* checkpointer, size_t* count);
muster_status muster_checkpointer_report(muster_checkpointer* checkpointer, size_t index, muster_save_report* report,
                                         char* text, size_t capacity, size_t* needed);

// Waits as muster_checkpointer_finish() does.
muster_status muster_checkpointer_release(muster_checkpointer* checkpointer);

// ---- preemption notices: preemption.h has the whole story ----

// The exit code that says to muster: all is saved, do not start the job again.
#define MUSTER_EXIT_SAVED_AND_LEFT 76

typedef struct muster_preemption muster_preemption;

// Handles these signals until the handle is released. NULL with 0: SIGTERM. MUSTER_ALREADY_EXISTS: one watches already.
muster_status muster_preemption_watch(muster_context* context, const int* signals, size_t signal_count,
                                      muster_preemption** preemption);
// Notices that this rank itself has got.
muster_status muster_preemption_count(muster_preemption* preemption, int* count);
// A collective of all ranks: has any rank got one?
muster_status muster_preemption_agreed(muster_preemption* preemption, int* leave);
muster_status muster_preemption_release(muster_preemption* preemption);

#ifdef __cplusplus
}
#endif

#endif
