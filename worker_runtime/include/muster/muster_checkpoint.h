// The part of muster.h that saves and loads checkpoints, and watches for preemption notices. Include muster.h.
#ifndef MUSTER_MUSTER_CHECKPOINT_H
#define MUSTER_MUSTER_CHECKPOINT_H

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- checkpoints (details in checkpoint.h) ----

// Tensor types for checkpoints only, in addition to those of operations (muster.h, muster_reductions.h).
enum {
    MUSTER_BOOL = 7,
    MUSTER_F8_E4M3 = 13,
    MUSTER_F8_E5M2 = 14,
};
enum {
    MUSTER_REPLICATED = 0,  // every rank has the whole tensor; rank 0 saves it (or see `spread_replicas`)
    MUSTER_SHARDED = 1,     // every rank has a part; together the parts are the whole tensor
};
// The behaviour of a save while the previous one is still being written.
enum {
    MUSTER_BUSY_DEFAULT = 0,  // in options: skip; in a call: the value of the options
    MUSTER_BUSY_SKIP = 1,     // skips this save on all ranks, and reports it
    MUSTER_BUSY_WAIT = 2,     // waits
};

// One rank's view of a tensor, contiguous. This structure never grows.
typedef struct muster_tensor {
    const char* name;
    const int64_t* shape;  // shape of the whole tensor, `dimension_count` dimensions; NULL with 0: one element
    size_t dimension_count;
    int type;
    void* data;  // host memory: save reads it before it returns, load writes it
    int placement;
    uint64_t begin, count;  // MUSTER_SHARDED: the range of elements in `data`, in row-major order
} muster_tensor;

// A short text that is equal on all ranks. This structure never grows.
typedef struct muster_value {
    const char* key;
    const char* value;
} muster_value;

// Everything that a checkpoint restores. Texts are UTF-8.
typedef struct muster_checkpoint_state {
    size_t size;
    const muster_tensor* tensors;
    size_t tensor_count;
    const muster_value* values;
    size_t value_count;
    const char* rank_value;  // a text of this rank, such as the state of its random generators; NULL: ""
    const void* rank_bytes;  // bytes of this rank, such as a reducer's; copied before save returns; since version 3
    size_t rank_bytes_size;
} muster_checkpoint_state;

typedef struct muster_checkpointer muster_checkpointer;

typedef struct muster_checkpointer_options {
    size_t size;
    const char* directory;  // NULL or "": MUSTER_CHECKPOINT_DIR, set by muster --checkpoint-dir
    int keep_last;          // 0: 2
    int64_t keep_every;     // also keeps the steps that are a multiple of this; 0: none
    int when_busy;
    int64_t persist_timeout_ms;      // from save until all ranks' parts are on disk; 0: 1,800,000
    int no_copies;                   // 1: copies in memory stay on their node
    uint64_t copy_bytes_per_second;  // maximum rate of a rank's copies to the next node, >= 65,536; 0: unlimited
    // Since version 3. A directory on a disk of this host, to which each rank's part is written first. NULL or "":
    // MUSTER_CHECKPOINT_LOCAL_DIR, set by muster --checkpoint-local-dir.
    const char* local_directory;
    int shared_every;  // with a local directory: every n-th save also goes to `directory`; 0: 1, every save
    // Since version 6. 1: the replicated tensors of 1 MiB and more are divided among the ranks, which write at once.
    // Use it only if the replicas are equal to the last bit. Must be equal on all ranks.
    int spread_replicas;
    // 1: save and snapshot first compare checksums of the replicated tensors of all ranks. MUSTER_INVALID_ARGUMENT
    // names the first tensor that differs, and the ranks.
    int verify_replicas;
} muster_checkpointer_options;

// A collective. MUSTER_ALREADY_EXISTS: another running job uses the directory. `options` may be NULL.
muster_status muster_checkpointer_open(muster_context* context, const muster_checkpointer_options* options,
                                       muster_checkpointer** checkpointer);

// A collective: copies this rank's share and returns; a thread writes it. The result is in the reports.
muster_status muster_checkpointer_save(muster_checkpointer* checkpointer, int64_t step,
                                       const muster_checkpoint_state* state, int when_busy);

// The same without a disk: this node's agent and the next node keep the copy, and the next round loads it after a
// failure. It is cheap enough for every step. Skipped on all ranks alike while another one is in progress, and without
// agents.
muster_status muster_checkpointer_snapshot(muster_checkpointer* checkpointer, int64_t step,
                                           const muster_checkpoint_state* state);
// Allocates the memory for copies of this rank's share before the first save. MUSTER_LIMIT_EXCEEDED: too little memory.
muster_status muster_checkpointer_reserve(muster_checkpointer* checkpointer, const muster_checkpoint_state* state);
// The newest step for which the next node has a copy of this rank's share; -1: none.
muster_status muster_checkpointer_copied_step(muster_checkpointer* checkpointer, int64_t* step);

// A collective: fills the memory of `state`'s tensors from the newest checkpoint that is complete on all ranks.
// `*step`: its step, or -1 if there is none. MUSTER_INVALID_ARGUMENT: the checkpoint is of another model; the message
// names the first tensor that differs. MUSTER_BAD_FRAME: there are checkpoints, but none is complete. The state's texts
// are ignored.
muster_status muster_checkpointer_load(muster_checkpointer* checkpointer, const muster_checkpoint_state* state,
                                       int64_t* step);

// A collective: the same for callers without tensors yet. `place` receives the tensors of the checkpoint (names, types
// and shapes; valid during the call) and sets their `data`; it may make them shards. If it returns anything but
// MUSTER_OK, the load ends on all ranks. It must not use the checkpointer, nor let a C++ exception out. It is called
// again if a checkpoint is damaged.
muster_status muster_checkpointer_load_as_saved(muster_checkpointer* checkpointer,
                                                muster_status (*place)(void* argument, muster_tensor* tensors,
                                                                       size_t count),
                                                void* argument, int64_t* step);

// A collective, since version 9: either of these for a state that survived a failure in this process's memory
// (clean_step.h). `own`: that state with its texts, or NULL if `*clean_step` is below 0 and there is `place`.
// `*clean_step`: the step that it is of, whole; -1: it never had one; -2: it had one, and has none now. `place`: NULL
// to load into the tensors of `own`. The ranks with the highest clean step keep their memory, and give it to the
// others. If no rank has one, if a rank has a part of its own (a shard, a rank_value, rank_bytes), or if the checksums
// or the `values` of these ranks differ, all load as above. MUSTER_NOT_FOUND: nothing is there to load, and a rank
// passed another `*clean_step` than -1. Afterwards `*clean_step` is the loaded step, or below 0 if `place` was called.
// After an error, too, pass the value that it has then to the next call.
muster_status muster_checkpointer_load_clean(
    muster_checkpointer* checkpointer, const muster_checkpoint_state* own, int64_t* clean_step,
    muster_status (*place)(void* argument, muster_tensor* tensors, size_t count), void* argument, int64_t* step);

// The texts of the last successful load. A rank that was not in the saved world gets "".
muster_status muster_checkpointer_loaded_value(muster_checkpointer* checkpointer, const char* key, char* text,
                                               size_t capacity, size_t* needed);
// Keys are numbered from 0. MUSTER_NOT_FOUND: `index` is beyond the last key.
muster_status muster_checkpointer_loaded_key(muster_checkpointer* checkpointer, size_t index, char* text,
                                             size_t capacity, size_t* needed);
muster_status muster_checkpointer_loaded_rank_value(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                                    size_t* needed);
// The bytes that this rank saved as rank_bytes; 0 bytes in a world of another size. Valid until the next load or the
// release; since version 3.
muster_status muster_checkpointer_loaded_rank_bytes(muster_checkpointer* checkpointer, const void** bytes,
                                                    size_t* size);
// The source of the last successful load; since version 3.
enum {
    MUSTER_FROM_SHARED = 0,      // the directory that all hosts share
    MUSTER_FROM_MEMORY = 1,      // the agents' memory
    MUSTER_FROM_LOCAL_DISK = 2,  // the hosts' local disks
    MUSTER_FROM_SURVIVOR = 3,    // the memory of a rank that survived a failure; since version 9
};
muster_status muster_checkpointer_loaded_from(muster_checkpointer* checkpointer, int* from);
// Empty unless it came from the shared directory, because parts in memory or on local disks have no common path.
muster_status muster_checkpointer_loaded_path(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                              size_t* needed);
// The newer checkpoints that were skipped, one per line, each with the reason.
muster_status muster_checkpointer_loaded_skipped(muster_checkpointer* checkpointer, char* text, size_t capacity,
                                                 size_t* needed);

// Waits until the save in progress is on disk or has failed. A failure means that the newest save is not on disk.
muster_status muster_checkpointer_finish(muster_checkpointer* checkpointer);

typedef struct muster_save_report {
    size_t size;
    int64_t step;
    int persisted;      // 1: the report's text is the checkpoint's path; 0: the text is the reason
    uint64_t bytes;     // size of this rank's share
    double blocked_ms;  // time that save blocked training on this rank
    double persist_ms;  // time from then until all ranks' parts were on disk
} muster_save_report;

// Collects the saves that have ended since the last call and sets `*count`. Their reports stay readable until the next
// call.
muster_status muster_checkpointer_take_reports(muster_checkpointer* checkpointer, size_t* count);
muster_status muster_checkpointer_report(muster_checkpointer* checkpointer, size_t index, muster_save_report* report,
                                         char* text, size_t capacity, size_t* needed);

// Waits as muster_checkpointer_finish() does.
muster_status muster_checkpointer_release(muster_checkpointer* checkpointer);

// ---- preemption notices (details in preemption.h) ----

// The exit code for "state saved": muster does not restart the job here.
#define MUSTER_EXIT_SAVED_AND_LEFT 76

typedef struct muster_preemption muster_preemption;

// Handles these signals until the handle is released. NULL with 0: SIGTERM. MUSTER_ALREADY_EXISTS: this process has
// another one.
muster_status muster_preemption_watch(muster_context* context, const int* signals, size_t signal_count,
                                      muster_preemption** preemption);
// The number of notices that this rank itself has received.
muster_status muster_preemption_count(muster_preemption* preemption, int* count);
// A collective of all ranks. `*leave`: 1 if any rank has received a notice.
muster_status muster_preemption_agreed(muster_preemption* preemption, int* leave);
muster_status muster_preemption_release(muster_preemption* preemption);

#ifdef __cplusplus
}
#endif

#endif
