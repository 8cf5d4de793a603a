// The worker runtime for C, and for every language that can call C: rank and world, collectives, and averaged gradients
// during the backward pass. The C++ headers beside this one describe each part in more detail; C_API.md has a complete
// program.
//
// Link libmuster.so, which exports the functions of this header only. C99.
//
// Errors. Every function that can fail returns a muster_status: MUSTER_OK (0), or the kind of failure.
// muster_last_error() in the same thread returns its message, which names the rank or the argument. No C++ exception
// leaves the library. A detectably wrong handle or argument never crashes it.
//
// Handles (muster_context and so on) are opaque; release them with muster_..._release(). A released or invalid handle
// gives MUSTER_INVALID_ARGUMENT everywhere; NULL may be released. A handle keeps alive what it needs: a context may be
// released before its communicators, and a communicator before its reducers.
//
// Structures that may grow begin with their size, which the caller sets: {.size = sizeof options}. A zero field means
// its default. So a program compiled against an older header runs with a newer library.
//
// Enumerations are passed as int. Their values, and the meaning of a function, never change within one
// MUSTER_API_VERSION.
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- the library ----

// Increases by one with each addition. A program needs muster_api_version() >= the MUSTER_API_VERSION of its header.
#define MUSTER_API_VERSION 9
int muster_api_version(void);

typedef int muster_status;
enum {
    MUSTER_OK = 0,
    MUSTER_INVALID_ARGUMENT = 1,  // an argument, a handle or an environment variable is wrong
    MUSTER_TIMED_OUT = 2,         // a deadline passed
    MUSTER_REFUSED = 3,           // a peer answered and refused
    MUSTER_UNREACHABLE = 4,       // no peer answered
    MUSTER_PEER_CLOSED = 5,       // a rank has ended
    MUSTER_BAD_FRAME = 6,         // the received data is not of the protocol
    MUSTER_LIMIT_EXCEEDED = 7,    // too long, too many, or too little memory on this host
    MUSTER_NOT_FOUND = 8,
    MUSTER_ALREADY_EXISTS = 9,
    MUSTER_PERMISSION_DENIED = 10,
    MUSTER_CANCELLED = 11,    // abort() was called, or the round has ended and this process is to leave
    MUSTER_UNSUPPORTED = 12,  // not supported in this build or on this host
    MUSTER_IO = 13,           // any other error of the operating system
    MUSTER_OUT_OF_MEMORY = 14,
    MUSTER_INTERNAL = 15,     // a bug in the library
    MUSTER_ROUND_ENDED = 16,  // the round has ended, and this process may enter the next one: muster_context_rejoin()
};

// The name of a status, such as "timed_out"; "unknown" for any other number.
const char* muster_status_name(muster_status status);

// The message of this thread's last failed call; "" before the first. Valid until the next failed call of this thread.
const char* muster_last_error(void);

// Functions that return a text copy it into the caller's memory: at most `capacity` bytes, including the final 0. They
// set `needed`, unless it is NULL, to the size of the whole text in bytes. If the memory is too small, they copy as
// much as fits and return MUSTER_LIMIT_EXCEEDED. With `text` NULL they only set `needed`.

// ---- context: one per process ----

typedef struct muster_context muster_context;
typedef struct muster_communicator muster_communicator;

enum {
    MUSTER_TRANSPORT_AUTOMATIC = 0,
    MUSTER_TRANSPORT_SHARED_MEMORY = 1,
    MUSTER_TRANSPORT_TCP = 2,
    MUSTER_TRANSPORT_HIERARCHICAL = 3,  // shared memory inside each node of the launcher, TCP between nodes
    MUSTER_TRANSPORT_NCCL = 4,          // GPUs; since version 2
};

typedef struct muster_context_options {
    size_t size;
    int64_t meeting_timeout_ms;    // until all ranks have joined; 0: 300,000
    int64_t operation_timeout_ms;  // default deadline of an operation; 0: 300,000
    int transport;                 // the variable MUSTER_TRANSPORT overrides it
} muster_context_options;

// Reads the variables that muster or torchrun set, connects to the store, and waits for the other ranks. Without a
// launcher it makes a world of one. MUSTER_INVALID_ARGUMENT: a variable is wrong; the message names it. `options` may
// be NULL.
muster_status muster_context_open(const muster_context_options* options, muster_context** context);

typedef struct muster_place {
    size_t size;
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    int group_rank;
    int device;  // index of this rank's CUDA device among the visible ones
    int64_t round;
    int64_t restart_count;
} muster_place;

muster_status muster_context_place(muster_context* context, muster_place* place);

// A handle for the communicator of all ranks. Each call returns another handle for the same communicator.
muster_status muster_context_world(muster_context* context, muster_communicator** world);

muster_status muster_context_release(muster_context* context);

// ---- survivors of a failed round; since version 8 (details in recoverable.h) ----

// Tells the agent whether this process can stay when its round ends, as muster_context_rejoin() does.
muster_status muster_context_can_rejoin(muster_context* context, int can);

// After a call has failed: release every handle that was made from this context, except the context, then call this. It
// waits for the next round and renews the context in place. MUSTER_REFUSED: a handle is still open.
// MUSTER_INVALID_ARGUMENT: no round has ended, the failure is this rank's own. After any other error, the context can
// only be released, and the process should exit.
muster_status muster_context_rejoin(muster_context* context);

// ---- sections and heartbeats for the agent; since version 3 (details in section.h) ----

// Reports progress; call it in each step of a loop. It needs no context, costs at most one datagram, and cannot fail.
void muster_heartbeat(void);
// Reports the number of a completed step, for muster status and for the count of the job's time; since version 8. From
// 0 on: negative ones are muster's.
void muster_progress(int64_t step);
// Names the worker's activity until muster_section_leave(), and suspends the agent's hang detection. If it lasts longer
// than `limit_ms`, the agent reports it; 0: no limit.
muster_status muster_section_enter(const char* name, int64_t limit_ms, uint64_t* section);
// A section of 0, and one that was left before, are ignored.
void muster_section_leave(uint64_t section);

// ---- the round's store, since version 2 ----
//
// Keys and values that all workers of this context share. The store is empty at the start of every round; a second
// program (or context) of a worker does not see the keys of the first. Values are bytes, at most 8 MiB. A world of one
// has its own keys, in its process.

muster_status muster_store_set(muster_context* context, const char* key, const void* value, size_t size);
// Waits until the key exists. `timeout_ms` 0: the context's 300,000. Copies at most `capacity` bytes, and sets
// `needed`, unless it is NULL, to the size of the value. If the memory is too small, it copies as much as fits and
// returns MUSTER_LIMIT_EXCEEDED. With `value` NULL it only sets `needed`.
muster_status muster_store_get(muster_context* context, const char* key, int64_t timeout_ms, void* value,
                               size_t capacity, size_t* needed);
// Adds to a number that starts at 0. `*sum`, unless NULL: the new value.
muster_status muster_store_add(muster_context* context, const char* key, int64_t delta, int64_t* sum);
// Deletes the key. `*erased`, unless NULL: 1 if it existed.
muster_status muster_store_erase(muster_context* context, const char* key, int* erased);

// ---- communicators ----
//
// All ranks of a group run the same collectives in the same order. After a failure a communicator is dead: each call
// returns the first failure. To continue, start a new round of the job. Refused arguments, and ranks that contradict
// each other in muster_all_to_all_uneven(), are none: muster_communicator_status() is MUSTER_OK then. communicator.h
// has the rules for threads.

muster_status muster_communicator_rank(muster_communicator* communicator, int* rank);
muster_status muster_communicator_size(muster_communicator* communicator, int* size);
// One of "shared memory", "tcp", "hierarchical", "nccl", "alone".
muster_status muster_communicator_transport(muster_communicator* communicator, char* text, size_t capacity,
                                            size_t* needed);

// A collective: makes a group of the ranks that pass the same color, ordered by `key`, then by rank. A rank with a
// negative color joins no group, and its `*group` is NULL.
muster_status muster_communicator_split(muster_communicator* communicator, int color, int key,
                                        muster_communicator** group);

// MUSTER_OK, or the first failure.
muster_status muster_communicator_status(muster_communicator* communicator);

// Ends the communicator on all ranks, with the message `why`. Any thread may call it.
muster_status muster_communicator_abort(muster_communicator* communicator, const char* why);

// Operations in progress fail if this is the last handle.
muster_status muster_communicator_release(muster_communicator* communicator);

// A collective: allocates `size_bytes` of zeroed memory on every rank. Collectives use it in place; other memory is
// copied through windows, at about three times the cost for large all-reduces. With NCCL it is GPU memory, which the
// host must not access. It stays valid until the handle is released.
typedef struct muster_memory muster_memory;
muster_status muster_allocate(muster_communicator* communicator, size_t size_bytes, muster_memory** memory);
muster_status muster_memory_data(muster_memory* memory, void** data, size_t* size_bytes);
muster_status muster_memory_release(muster_memory* memory);

// ---- operations ----

enum {
    MUSTER_F32 = 0,
    MUSTER_F64 = 1,
    MUSTER_F16 = 2,
    MUSTER_BF16 = 3,
    MUSTER_I32 = 4,
    MUSTER_I64 = 5,
    MUSTER_U8 = 6,
};

// Sums run in rank order, those of f16 and bf16 in f32, so the bits are the same on every run. muster_reductions.h has
// more of both.
enum {
    MUSTER_SUM = 0,
    MUSTER_AVG = 1,  // floating types only
    MUSTER_MIN = 2,
    MUSTER_MAX = 3,
};

// Each operation ends with the same two arguments:
//   timeout_ms   its deadline, from now for a blocking call, from its turn for a started one. 0: the context's default
//   work         NULL: the call returns when the operation is over. Else the call returns at once and sets `*work` to a
//                handle; the memory must stay valid and untouched until the operation is over
// `count` is in elements of `type`. "In place" means that input and output may be the same memory there.
typedef struct muster_work muster_work;

muster_status muster_barrier(muster_communicator* communicator, int64_t timeout_ms, muster_work** work);

// In place: every rank's `count` elements are replaced by the same result.
muster_status muster_all_reduce(muster_communicator* communicator, void* data, size_t count, int type, int reduce,
                                int64_t timeout_ms, muster_work** work);

// An average in which this rank has weight `weight`: >= 0, and not 0 on all ranks.
muster_status muster_all_reduce_weighted(muster_communicator* communicator, void* data, size_t count, int type,
                                         float weight, int64_t timeout_ms, muster_work** work);

// `input`: one piece of `count` per rank, piece r for rank r. `output`: this rank's piece. In place as its piece of
// `input`.
muster_status muster_reduce_scatter(muster_communicator* communicator, const void* input, void* output, size_t count,
                                    int type, int reduce, int64_t timeout_ms, muster_work** work);

// `input`: `count`. `output`: one piece of `count` per rank, in rank order. In place if `input` is this rank's piece.
muster_status muster_all_gather(muster_communicator* communicator, const void* input, void* output, size_t count,
                                int type, int64_t timeout_ms, muster_work** work);

// Copies the root's elements to every rank.
muster_status muster_broadcast(muster_communicator* communicator, void* data, size_t count, int type, int root,
                               int64_t timeout_ms, muster_work** work);

// Both have one piece of `count` per rank: piece r of `input` goes to rank r, piece r of `output` comes from rank r.
muster_status muster_all_to_all(muster_communicator* communicator, const void* input, void* output, size_t count,
                                int type, int64_t timeout_ms, muster_work** work);

// Sends to `peer`, which must receive the same count and type. Sends between two ranks arrive in the order of their
// starts.
muster_status muster_send(muster_communicator* communicator, const void* data, size_t count, int type, int peer,
                          int64_t timeout_ms, muster_work** work);
muster_status muster_receive(muster_communicator* communicator, void* data, size_t count, int type, int peer,
                             int64_t timeout_ms, muster_work** work);

// Waits until the operation is over and returns its result. It may be called repeatedly.
muster_status muster_work_wait(muster_work* work);
// `*done`: 1 after the operation succeeded or failed.
muster_status muster_work_done(muster_work* work, int* done);
// The run time of the operation, without the time in the queue; 0 until it is over.
muster_status muster_work_took(muster_work* work, int64_t* nanoseconds);
// May be called before the operation is over: the operation continues, and its memory must stay valid.
muster_status muster_work_release(muster_work* work);

// ---- the gradient reducer (details in gradient_reducer.h) ----

typedef struct muster_reducer muster_reducer;

// All fields except `data` are equal on all ranks. This structure never grows.
typedef struct muster_parameter {
    const char* name;      // unique; errors name it
    const int64_t* shape;  // `dimension_count` dimensions; NULL with 0: one element
    size_t dimension_count;
    int type;    // a floating type; the gradient has the same type
    void* data;  // contiguous; must outlive the reducer
} muster_parameter;

enum {
    MUSTER_WIRE_SAME = 0,
    MUSTER_WIRE_BF16 = 1,
    MUSTER_WIRE_F16 = 2,
    MUSTER_WIRE_INT8 = 3,   // with error feedback
    MUSTER_WIRE_POWER = 4,  // PowerSGD, with error feedback
};
enum { MUSTER_ORDER_OBSERVED = 0, MUSTER_ORDER_REGISTERED = 1 };

#define MUSTER_BUCKET_AUTOMATIC (-1.0)

typedef struct muster_exchange muster_exchange;

typedef struct muster_reducer_options {
    size_t size;
    double bucket_cap_mb;       // MiB; 0: 25; MUSTER_BUCKET_AUTOMATIC: chosen from a measurement at the start
    double first_bucket_mb;     // 0: 1
    double last_bucket_mb;      // 0: 1
    int wire;                   // format in which f32 gradients travel
    int power_rank;             // MUSTER_WIRE_POWER: columns of the thin matrices; 0: 2
    uint64_t power_start_step;  // MUSTER_WIRE_POWER: the steps before this one send gradients unchanged; 0: 10
    int order;                  // MUSTER_ORDER_REGISTERED keeps the first layout of buckets
    int uneven_inputs;          // 1: ranks without more batches call muster_reducer_join()
    int finite_check;           // 1: finish() returns an error that names a gradient with NaN or infinity, and its rank
    int padding;                // ignored: version 1 ended here, so an old program may have any value in it
    int own_piece;  // 1: each rank gets the averages of its own piece, for muster_optimizer; since version 2
    // Your own exchange (hook), instead of `wire` (muster_exchange.h). It is copied, except the object behind its
    // `argument`, which must outlive the reducer. Since version 5.
    const muster_exchange* exchange;
} muster_reducer_options;

// A collective: compares names, shapes, types and order (an error names the parameter and two ranks), then copies rank
// 0's parameters to all ranks. Names and shapes are copied. `options` may be NULL. An argument that is refused on one
// rank is an error on all ranks, at once. Over NCCL gradients are on the GPU, and parameters may be; see
// gradient_reducer.h.
muster_status muster_reducer_make(muster_communicator* communicator, const muster_parameter* parameters, size_t count,
                                  const muster_reducer_options* options, muster_reducer** reducer);

// Begins a step that ends with averaging. `samples`: the weight of this rank's gradients, usually its batch size.
// `*moved`, unless NULL: 1 if gradients have moved; call muster_reducer_gradient() again then.
muster_status muster_reducer_begin_step(muster_reducer* reducer, float samples, int* moved);

// Begins a step without communication (no_sync): gradients accumulate, and the next begin_step() averages the sum.
muster_status muster_reducer_begin_local_step(muster_reducer* reducer, int* moved);

// The address where the backward pass writes a parameter's gradient, and where its average is after finish().
// Parameters are numbered in the order of registration.
muster_status muster_reducer_gradient(muster_reducer* reducer, int parameter, void** data, size_t* count);

// Marks the gradient as complete. Several threads may call it at once; all other functions of a reducer need one
// thread.
muster_status muster_reducer_mark_ready(muster_reducer* reducer, int parameter);
// The same on a GPU: the gradient is complete after `event` (a cudaEvent_t in its current state); since version 2.
muster_status muster_reducer_mark_ready_after(muster_reducer* reducer, int parameter, void* event);

// Returns when every gradient is the average. MUSTER_INVALID_ARGUMENT, on all ranks alike: no rank has samples in the
// step or, with finite_check, a gradient is not finite. Training may continue.
muster_status muster_reducer_finish(muster_reducer* reducer);

// This rank has no more batches: takes part in the other ranks' steps with weight 0, until all ranks have called it.
// `apply` is the trainer's work after finish(). If it returns anything but MUSTER_OK, the call ends. It must not let a
// C++ exception out. An error of finish() ends the call too: if the other ranks continue, call it again.
muster_status muster_reducer_join(muster_reducer* reducer, muster_status (*apply)(void* argument), void* argument);

// `*used`: 1 if any rank marked it in the last averaged step. If 0, the optimizer skips the parameter.
muster_status muster_reducer_used(muster_reducer* reducer, int parameter, int* used);

// For backward passes that add to gradients instead of overwriting them.
muster_status muster_reducer_zero_gradients(muster_reducer* reducer);
// On a GPU: runs after `event`, the event of the caller's last work on gradients, and is complete on return. Since
// version 2.
muster_status muster_reducer_zero_gradients_after(muster_reducer* reducer, void* event);

// After finish(): scales all gradients so that their norm is at most `max_norm`. `*norm`, unless NULL: the norm before.
// A collective with `own_piece`, and on GPUs.
muster_status muster_reducer_clip_grad_norm(muster_reducer* reducer, double max_norm, double* norm);

// A text such as "161 parameters, 97.5 MiB in 6 buckets (cap 25 MiB), wire bf16, shared memory".
muster_status muster_reducer_description(muster_reducer* reducer, char* text, size_t capacity, size_t* needed);

// The state that a reducer keeps from step to step, for checkpoints. A run that restores it continues with the same
// bits as a run that never stopped. Since version 3.
typedef struct muster_reducer_state {
    size_t size;
    const char* plan;  // rank 0's text: save it as a muster_value of the checkpoint
    const void* own;   // this rank's residuals of its wire: save them as rank_bytes of the checkpoint
    size_t own_size;   // 0 if the wire has no residuals
} muster_reducer_state;

// Call it between averaged steps. The reducer owns the memory; it is valid until the next call or the release.
muster_status muster_reducer_keep(muster_reducer* reducer, muster_reducer_state* state);
// A collective, right after muster_reducer_make(), with rank 0's `plan` on all ranks ("" or NULL: nothing is done). In
// a world of another size pass no `own`: the residuals are lost once. MUSTER_INVALID_ARGUMENT: the state belongs to
// other parameters or another wire. Gradients move: call muster_reducer_gradient() again.
muster_status muster_reducer_restore(muster_reducer* reducer, const muster_reducer_state* state);

muster_status muster_reducer_release(muster_reducer* reducer);

// ---- cost of a step (details in step_cost.h) ----

typedef struct muster_step_cost {
    size_t size;
    int64_t total_ns;  // compute + data wait + exposed
    int64_t compute_ns;
    int64_t data_wait_ns;
    int64_t exposed_ns;        // the training thread waited for communication
    int64_t communication_ns;  // collectives were in progress, hidden behind compute or not
    uint64_t bytes;            // bytes that this rank passed to collectives, after compression
    double samples;            // samples of all ranks
} muster_step_cost;

// Adds a time during which the trainer waited for its input.
muster_status muster_reducer_add_data_wait(muster_reducer* reducer, int64_t nanoseconds);
muster_status muster_reducer_last_step(muster_reducer* reducer, muster_step_cost* cost);
// The first step of the run, and the mean of the counted steps (without the first ones and those that made new
// buckets). Since version 4.
muster_status muster_reducer_first_step(muster_reducer* reducer, muster_step_cost* cost);
muster_status muster_reducer_mean_step(muster_reducer* reducer, muster_step_cost* cost);
// The longest mean wait of any rank, minus that of `rank`: it is largest for the rank that arrives last. Since
// version 4.
muster_status muster_reducer_lateness(muster_reducer* reducer, int rank, int64_t* nanoseconds);

// A run of the same trainer on another number of workers (usually one), for comparison.
typedef struct muster_baseline {
    size_t size;
    int world_size;
    double samples_per_second;
    double samples_per_step;  // samples of all ranks
} muster_baseline;

// Efficiencies: the samples per second of a worker, divided by those of a baseline worker. 0 if the runs are not
// comparable.
typedef struct muster_scaling {
    size_t size;
    double strong;     // set if the baseline had the same number of samples per step
    double weak;       // set if the baseline had the same number of samples per worker and step
    double estimated;  // without a baseline: the share of the step without exposed communication
    double samples_per_second;
    uint64_t step_count;  // counted steps; the first ones are not counted
} muster_scaling;

// `baseline` and `scaling` may be NULL. The text is a readable report with advice.
muster_status muster_reducer_scaling_report(muster_reducer* reducer, const muster_baseline* baseline,
                                            muster_scaling* scaling, char* text, size_t capacity, size_t* needed);

// ---- the sharded optimizer, since version 2 (details in sharded_optimizer.h) ----
//
// An optimizer whose state is divided among the ranks. It needs a reducer made with `own_piece`.

typedef struct muster_optimizer muster_optimizer;

enum { MUSTER_SGD = 0, MUSTER_ADAM = 1, MUSTER_ADAMW = 2 };

// Fields that the rule does not use are ignored. Zero means zero here: call muster_optimizer_defaults() first.
typedef struct muster_optimizer_rule {
    size_t size;
    int kind;
    double learning_rate;
    double momentum;  // MUSTER_SGD
    double beta1;     // this and the next two: MUSTER_ADAM and MUSTER_ADAMW
    double beta2;
    double epsilon;
    double weight_decay;  // all rules
} muster_optimizer_rule;

// Fills `rule`, whose size is set, with PyTorch's defaults of that kind, except a learning rate of 0.01 for SGD.
muster_status muster_optimizer_defaults(int kind, muster_optimizer_rule* rule);

// Starts with the current values of the parameters. Keeps the reducer alive.
muster_status muster_optimizer_make(muster_reducer* reducer, const muster_optimizer_rule* rule,
                                    muster_optimizer** optimizer);

// A collective, after muster_reducer_finish(): updates all parameters on all ranks. Gradients are undefined until the
// next backward pass writes them.
muster_status muster_optimizer_step(muster_optimizer* optimizer);
muster_status muster_optimizer_set_learning_rate(muster_optimizer* optimizer, double learning_rate);

// For checkpoints: the state that this rank keeps for a range of elements of one parameter. The pieces of all ranks
// cover each parameter exactly once. The optimizer owns the memory (GPU memory over NCCL); the caller may write it.
typedef struct muster_optimizer_piece {
    size_t size;
    int parameter;
    size_t offset;      // first element in the parameter
    size_t count;       // elements of each of the three arrays
    float* values;      // the parameter, before rounding to its type
    float* first;       // momentum, or Adam's first moment; NULL for SGD without momentum
    float* second;      // Adam's second moment; NULL for SGD
    uint64_t* updates;  // number of updates of this parameter; all its pieces on one rank share it
} muster_optimizer_piece;

muster_status muster_optimizer_piece_count(muster_optimizer* optimizer, size_t* count);
muster_status muster_optimizer_get_piece(muster_optimizer* optimizer, size_t index, muster_optimizer_piece* piece);

// A collective, after pieces were written: sets the parameters on all ranks from the pieces.
muster_status muster_optimizer_reload(muster_optimizer* optimizer);

muster_status muster_optimizer_release(muster_optimizer* optimizer);

// ---- synchronised batch normalisation, since version 2 ----
//
// Both are collectives on host arrays with one value per channel. Use a separate communicator
// (muster_communicator_split()), because they run in the middle of passes while the reducer uses the other one.

// In the forward pass: replaces the statistics of this rank's `*count` values per channel (may be 0) by those of all
// ranks' values. The variance is divided by the count n, not by n - 1.
muster_status muster_batch_statistics(muster_communicator* communicator, float* mean, float* variance,
                                      size_t channel_count, uint64_t* count);

// In the backward pass: replaces both arrays by their sums over all ranks: output gradient, and output gradient times
// (input - mean).
muster_status muster_batch_gradients(muster_communicator* communicator, float* sum_gradient, float* sum_product,
                                     size_t channel_count);

#ifdef __cplusplus
}
#endif

#include "muster/muster_checkpoint.h"
#include "muster/muster_exchange.h"
#include "muster/muster_group.h"
#include "muster/muster_loss_scaler.h"
#include "muster/muster_moves.h"
#include "muster/muster_reductions.h"
#include "muster/muster_sampler.h"

#endif
