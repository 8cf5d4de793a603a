// The worker runtime for C, and for every language that can call C: who am I, move data with the other ranks, average
// gradients while the backward pass still runs. The C++ headers beside this one say more about what each part does;
// C_API.md has a whole program.
//
// Link libmuster.so, which exports what stands here and nothing else. C99.
//
// Errors. Every function that can fail returns a muster_status: MUSTER_OK (0), or what kind of failure it was. The
// sentence that belongs to it, which names the rank or the argument, is muster_last_error() of the same thread. No C++
// exception leaves the library, and no handle or argument that can be told to be wrong brings it down.
//
// Handles (muster_context and so on) are opaque, and given back with muster_..._release(). One that was released, or
// is none, is MUSTER_INVALID_ARGUMENT wherever it is used; NULL may be released. What a handle needs lives on below it:
// a context may be released before its communicators, and a communicator before its reducers.
//
// Structures that may grow begin with their size, which the caller sets: {.size = sizeof options}. What is left zero
// means the default. A program compiled against an older header so runs with a newer library.
//
// Enumerations are passed as int. They, and the meaning of a function, never change within one MUSTER_API_VERSION.
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- the library ----

// Grows by one when something is added. A program needs muster_api_version() >= the MUSTER_API_VERSION it was made
// with.
#define MUSTER_API_VERSION 6
int muster_api_version(void);

typedef int muster_status;
enum {
    MUSTER_OK = 0,
    MUSTER_INVALID_ARGUMENT = 1,  // an argument, a handle or a variable of the environment is wrong
    MUSTER_TIMED_OUT = 2,         // a deadline passed
    MUSTER_REFUSED = 3,           // somebody answered, and said no
    MUSTER_UNREACHABLE = 4,       // nobody answered
    MUSTER_PEER_CLOSED = 5,       // a rank has ended
    MUSTER_BAD_FRAME = 6,         // what came is not of the protocol
    MUSTER_LIMIT_EXCEEDED = 7,    // too long, too many, or too little memory on the host
    MUSTER_NOT_FOUND = 8,
    MUSTER_ALREADY_EXISTS = 9,
    MUSTER_PERMISSION_DENIED = 10,
    MUSTER_CANCELLED = 11,    // abort(), or the round has ended
    MUSTER_UNSUPPORTED = 12,  // not in this build, or not on this host
    MUSTER_IO = 13,           // any other error of the operating system
    MUSTER_OUT_OF_MEMORY = 14,
    MUSTER_INTERNAL = 15,  // a bug of the library
};

// "timed_out"; "unknown" for a number that is none of the above.
const char* muster_status_name(muster_status status);

// The sentence of this thread's last failed call; "" before the first. Valid until the next call that fails here.
const char* muster_last_error(void);

// Texts are copied into memory of the caller's: at most `capacity` bytes with the final 0. `needed`, unless NULL, gets
// the bytes that all of it takes. Too small: as much as fits, and MUSTER_LIMIT_EXCEEDED. `text` NULL: only asks.

// ---- context: one for a process ----

typedef struct muster_context muster_context;
typedef struct muster_communicator muster_communicator;

enum {
    MUSTER_TRANSPORT_AUTOMATIC = 0,
    MUSTER_TRANSPORT_SHARED_MEMORY = 1,
    MUSTER_TRANSPORT_TCP = 2,
    MUSTER_TRANSPORT_HIERARCHICAL = 3,  // shared memory inside each launcher's node, TCP between them
    MUSTER_TRANSPORT_NCCL = 4,          // on GPUs; since version 2
};

typedef struct muster_context_options {
    size_t size;
    int64_t meeting_timeout_ms;    // for all ranks to come; 0: 300,000
    int64_t operation_timeout_ms;  // of an operation that names none; 0: 300,000
    int transport;                 // the variable MUSTER_TRANSPORT wins
} muster_context_options;

// Reads the variables that muster or torchrun set, reaches the store, and meets the other ranks; alone, the world is
// one. MUSTER_INVALID_ARGUMENT names the variable that is wrong. `options` may be NULL.
muster_status muster_context_open(const muster_context_options* options, muster_context** context);

typedef struct muster_place {
    size_t size;
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    int group_rank;
    int device;  // the CUDA device of this rank, among the visible ones
    int64_t round;
    int64_t restart_count;
} muster_place;

muster_status muster_context_place(muster_context* context, muster_place* place);

// A handle for the communicator of all ranks; each call gives another handle for the same one.
muster_status muster_context_world(muster_context* context, muster_communicator** world);

muster_status muster_context_release(muster_context* context);

// ---- what this worker does, for its agent; since version 3 (section.h has the whole story) ----

// "I live and go on", in each step of a loop. Needs no context, costs a datagram at most, cannot fail.
void muster_heartbeat(void);
// What the worker does from here to muster_section_leave() has this name, and nothing is missed meanwhile; beyond
// `limit_ms` the agent says so; 0: it may last.
muster_status muster_section_enter(const char* name, int64_t limit_ms, uint64_t* section);
// 0, and a section that was left before, are nothing.
void muster_section_leave(uint64_t section);

// ---- the round's store, since version 2 ----
//
// Keys and values that all workers of the round see that have met in this context, fresh in every round: what a
// worker's first program (or context) stores its second does not find. Values are bytes, at most 8 MiB. A world of one
// has keys of its own, in its process.

muster_status muster_store_set(muster_context* context, const char* key, const void* value, size_t size);
// Waits until the key exists; `timeout_ms` 0: the 300,000 of a context. At most `capacity` bytes are copied; `needed`,
// unless NULL, gets how many there are. Too small: as much as fits, and MUSTER_LIMIT_EXCEEDED. `value` NULL: only asks.
muster_status muster_store_get(muster_context* context, const char* key, int64_t timeout_ms, void* value,
                               size_t capacity, size_t* needed);
// Adds to a number that starts at 0. `*sum`, unless NULL: the new one.
muster_status muster_store_add(muster_context* context, const char* key, int64_t delta, int64_t* sum);
// `*erased`, unless NULL: 1 where there was one.
muster_status muster_store_erase(muster_context* context, const char* key, int* erased);

// ---- communicators ----
//
// All ranks of a group run the same collectives in the same order. After any failure a communicator is dead: each call
// returns the first failure, and the only way on is a new round of the job. communicator.h has the rules for threads.

muster_status muster_communicator_rank(muster_communicator* communicator, int* rank);
muster_status muster_communicator_size(muster_communicator* communicator, int* size);
// "shared memory", "tcp", "hierarchical", "nccl", "alone".
muster_status muster_communicator_transport(muster_communicator* communicator, char* text, size_t capacity,
                                            size_t* needed);

// A collective: the ranks that give the same color become a group, ordered by `key` and then by rank. A negative color
// takes part in none: `*group` is NULL then.
muster_status muster_communicator_split(muster_communicator* communicator, int color, int key,
                                        muster_communicator** group);

// MUSTER_OK, or the first failure.
muster_status muster_communicator_status(muster_communicator* communicator);

// Ends it on all ranks, from any thread; they get `why`.
muster_status muster_communicator_abort(muster_communicator* communicator, const char* why);

// Operations in progress fail.
muster_status muster_communicator_release(muster_communicator* communicator);

// A collective: `size_bytes` of zeroed memory on every rank, which collectives use where it lies; any other memory is
// copied through windows, at about three times the cost for large all-reduces. With NCCL it is memory of the GPU, which
// the host must not touch. It stays valid until the handle is released.
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

// Sums run in rank order, those of f16 and bf16 in f32: the same bits on every run.
enum {
    MUSTER_SUM = 0,
    MUSTER_AVG = 1,  // floating types only
    MUSTER_MIN = 2,
    MUSTER_MAX = 3,
};

// Each operation ends with the same two arguments:
//   timeout_ms   its deadline: from now for a blocking one, from its turn for a started one. 0: the context's
//   work         NULL: returns when the operation is over. Else returns at once with a handle for it in `*work`; the
//                memory must stay valid, and untouched, until it is over
// `count` is in elements of `type`. "In place" says where input and output may be the same memory.
typedef struct muster_work muster_work;

muster_status muster_barrier(muster_communicator* communicator, int64_t timeout_ms, muster_work** work);

// In place: every rank's `count` elements become the same result.
muster_status muster_all_reduce(muster_communicator* communicator, void* data, size_t count, int type, int reduce,
                                int64_t timeout_ms, muster_work** work);

// The average in which this rank counts as much as its `weight`: >= 0, and not 0 on all ranks.
muster_status muster_all_reduce_weighted(muster_communicator* communicator, void* data, size_t count, int type,
                                         float weight, int64_t timeout_ms, muster_work** work);

// `input`: world pieces of `count`, piece r for rank r. `output`: this rank's. In place as its piece of `input`.
muster_status muster_reduce_scatter(muster_communicator* communicator, const void* input, void* output, size_t count,
                                    int type, int reduce, int64_t timeout_ms, muster_work** work);

// `input`: `count`. `output`: world pieces of `count`, in rank order. In place where `input` is this rank's piece.
muster_status muster_all_gather(muster_communicator* communicator, const void* input, void* output, size_t count,
                                int type, int64_t timeout_ms, muster_work** work);

// Every rank gets root's elements.
muster_status muster_broadcast(muster_communicator* communicator, void* data, size_t count, int type, int root,
                               int64_t timeout_ms, muster_work** work);

// Both hold world pieces of `count`: piece r of `input` goes to rank r, piece r of `output` comes from it.
muster_status muster_all_to_all(muster_communicator* communicator, const void* input, void* output, size_t count,
                                int type, int64_t timeout_ms, muster_work** work);

// To `peer`, which receives the same count and type. Between two ranks sends arrive in the order of their starts.
muster_status muster_send(muster_communicator* communicator, const void* data, size_t count, int type, int peer,
                          int64_t timeout_ms, muster_work** work);
muster_status muster_receive(muster_communicator* communicator, void* data, size_t count, int type, int peer,
                             int64_t timeout_ms, muster_work** work);

// Returns when the operation is over, with its result; as often as you like.
muster_status muster_work_wait(muster_work* work);
// Is it over, for good or ill?
muster_status muster_work_done(muster_work* work, int* done);
// How long it ran, without the wait for its turn; 0 until it is over.
muster_status muster_work_took(muster_work* work, int64_t* nanoseconds);
// Also before it is over: it goes on, and its memory must still stay valid.
muster_status muster_work_release(muster_work* work);

// ---- the gradient reducer: gradient_reducer.h has the whole story ----

typedef struct muster_reducer muster_reducer;

// Equal on all ranks but for `data`. This structure never grows.
typedef struct muster_parameter {
    const char* name;      // unique; errors use it
    const int64_t* shape;  // `dimension_count` of them; NULL with 0: one element
    size_t dimension_count;
    int type;    // a floating one; the gradient has the same
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
    double bucket_cap_mb;       // MiB; 0: 25; MUSTER_BUCKET_AUTOMATIC: chosen from what is measured at the start
    double first_bucket_mb;     // 0: 1
    double last_bucket_mb;      // 0: 1
    int wire;                   // how gradients of f32 travel
    int power_rank;             // MUSTER_WIRE_POWER: columns of the thin matrices; 0: 2
    uint64_t power_start_step;  // MUSTER_WIRE_POWER: steps before that send gradients as they are; 0: 10
    int order;                  // MUSTER_ORDER_REGISTERED keeps the first layout of buckets
    int uneven_inputs;          // 1: ranks that run out of batches call muster_reducer_join()
    int finite_check;           // 1: finish() names a gradient that is NaN or infinite, and its rank
    int padding;                // ignored: version 1 ended before it, and a program of that time may have anything here
    int own_piece;  // 1: each rank gets the averages of its piece only, for muster_optimizer; since version 2
    // A hook, in place of `wire` (muster_exchange.h). Copied, but for what its `argument` points to, which must live
    // until the reducer is released. Since version 5.
    const muster_exchange* exchange;
} muster_reducer_options;

// A collective: compares names, shapes, types and order (an error names the parameter and two ranks), then copies rank
// 0's parameters to all. Names and shapes are copied. `options` may be NULL. An argument that is refused on one rank is
// an error on all of them, at once. Over NCCL gradients lie on the GPU, and parameters may; gradient_reducer.h says how
// that goes.
muster_status muster_reducer_make(muster_communicator* communicator, const muster_parameter* parameters, size_t count,
                                  const muster_reducer_options* options, muster_reducer** reducer);

// A backward pass that ends with averaging. `samples`: how much this rank's gradients count, most often the size of its
// batch. `*moved`, unless NULL: 1 where gradients have moved, so that muster_reducer_gradient() is to be asked again.
muster_status muster_reducer_begin_step(muster_reducer* reducer, float samples, int* moved);

// A backward pass without communication (no_sync): gradients accumulate, and the next begin_step() averages the sum.
muster_status muster_reducer_begin_local_step(muster_reducer* reducer, int* moved);

// Where a parameter's gradient is written by the backward pass, and where its average is after finish(). Parameters are
// counted in the order of registration.
muster_status muster_reducer_gradient(muster_reducer* reducer, int parameter, void** data, size_t* count);

// The gradient is complete. May be called by several threads at once; everything else about a reducer by one at a time.
muster_status muster_reducer_mark_ready(muster_reducer* reducer, int parameter);
// The same on a GPU, as soon as `event` (a cudaEvent_t, as it stands now) has come; since version 2.
muster_status muster_reducer_mark_ready_after(muster_reducer* reducer, int parameter, void* event);

// Returns when every gradient is the average. MUSTER_INVALID_ARGUMENT, on all ranks alike, where no rank has samples in
// the step or, with finite_check, where a gradient is not finite: training may go on.
muster_status muster_reducer_finish(muster_reducer* reducer);

// This rank has no more batches: takes part, with no weight, until all ranks have called it. `apply` is what the
// trainer does after finish(); what it returns, unless MUSTER_OK, ends it. It must not let a C++ exception out. An
// error of finish() ends it too: where the others go on after it, call this again.
muster_status muster_reducer_join(muster_reducer* reducer, muster_status (*apply)(void* argument), void* argument);

// Did any rank mark it in the last step that averaged? Where not, the optimizer leaves the parameter alone.
muster_status muster_reducer_used(muster_reducer* reducer, int parameter, int* used);

// For backward passes that add to gradients.
muster_status muster_reducer_zero_gradients(muster_reducer* reducer);
// On a GPU, behind `event`, that of the caller's last work on gradients; over when it returns. Since version 2.
muster_status muster_reducer_zero_gradients_after(muster_reducer* reducer, void* event);

// After finish(): scales all gradients so that their norm is at most `max_norm`. `*norm`, unless NULL: before that.
// With `own_piece`, and on GPUs, a collective.
muster_status muster_reducer_clip_grad_norm(muster_reducer* reducer, double max_norm, double* norm);

// "161 parameters, 97.5 MiB in 6 buckets (cap 25 MiB), wire bf16, shared memory".
muster_status muster_reducer_description(muster_reducer* reducer, char* text, size_t capacity, size_t* needed);

// What a reducer remembers from step to step, for checkpoints: with it a training that goes on has the bits of one that
// never stopped. Since version 3.
typedef struct muster_reducer_state {
    size_t size;
    const char* plan;  // a text that is rank 0's: a muster_value of the checkpoint
    const void* own;   // this rank's own bytes, what its wire held back in rounding: rank_bytes of the checkpoint
    size_t own_size;   // 0 where the wire holds nothing back
} muster_reducer_state;

// Between steps that average. The memory is the reducer's, until the next call of this or its release.
muster_status muster_reducer_keep(muster_reducer* reducer, muster_reducer_state* state);
// A collective, right after muster_reducer_make(), with rank 0's `plan` on all ranks ("" or NULL: nothing is done). No
// `own` in a world of another size: what was held back is lost once. MUSTER_INVALID_ARGUMENT: it is of other parameters
// or another wire. Gradients move: ask for them again.
muster_status muster_reducer_restore(muster_reducer* reducer, const muster_reducer_state* state);

muster_status muster_reducer_release(muster_reducer* reducer);

// ---- what a step costs ----

typedef struct muster_step_cost {
    size_t size;
    int64_t total_ns;  // compute + data wait + exposed
    int64_t compute_ns;
    int64_t data_wait_ns;
    int64_t exposed_ns;        // the training thread stood still for communication
    int64_t communication_ns;  // collectives in progress, hidden behind compute or not
    uint64_t bytes;            // this rank gave to collectives, after compression
    double samples;            // of all ranks
} muster_step_cost;

// The trainer waited so long for its input.
muster_status muster_reducer_add_data_wait(muster_reducer* reducer, int64_t nanoseconds);
muster_status muster_reducer_last_step(muster_reducer* reducer, muster_step_cost* cost);
// The first step of all, and the mean of the steps that count: neither the first ones nor those that made new buckets.
// Since version 4.
muster_status muster_reducer_first_step(muster_reducer* reducer, muster_step_cost* cost);
muster_status muster_reducer_mean_step(muster_reducer* reducer, muster_step_cost* cost);
// How much longer the most patient rank waited in a step than `rank`, on average: most for the rank that comes last.
// Since version 4.
muster_status muster_reducer_lateness(muster_reducer* reducer, int rank, int64_t* nanoseconds);

// The same trainer's run on another number of workers, to compare with; most often one.
typedef struct muster_baseline {
    size_t size;
    int world_size;
    double samples_per_second;
    double samples_per_step;  // of all ranks
} muster_baseline;

// Efficiencies: a worker's samples per second as a share of a baseline worker's. 0 where the runs cannot be compared.
typedef struct muster_scaling {
    size_t size;
    double strong;     // the baseline had the same number of samples in a step
    double weak;       // the baseline had the same number of samples for each worker in a step
    double estimated;  // without a baseline: the share of the step that is not exposed communication
    double samples_per_second;
    uint64_t step_count;  // steps judged; the first ones are left out
} muster_scaling;

// `baseline` and `scaling` may be NULL. The text is for people, and says what to try.
muster_status muster_reducer_scaling_report(muster_reducer* reducer, const muster_baseline* baseline,
                                            muster_scaling* scaling, char* text, size_t capacity, size_t* needed);

// ---- the sharded optimizer, since version 2: sharded_optimizer.h has the whole story ----
//
// An optimizer whose state is divided among the ranks, on top of a reducer that was made with `own_piece`.

typedef struct muster_optimizer muster_optimizer;

enum { MUSTER_SGD = 0, MUSTER_ADAM = 1, MUSTER_ADAMW = 2 };

// What a rule does not know is ignored. Here zero means zero: let muster_optimizer_defaults() fill it in first.
typedef struct muster_optimizer_rule {
    size_t size;
    int kind;
    double learning_rate;
    double momentum;  // MUSTER_SGD
    double beta1;     // MUSTER_ADAM and MUSTER_ADAMW, as all below
    double beta2;
    double epsilon;
    double weight_decay;  // of MUSTER_SGD too
} muster_optimizer_rule;

// Fills `rule`, whose size is set, with the defaults of that kind: PyTorch's, but for a learning rate of 0.01 for SGD.
muster_status muster_optimizer_defaults(int kind, muster_optimizer_rule* rule);

// Takes the parameters' values as they are. Keeps the reducer.
muster_status muster_optimizer_make(muster_reducer* reducer, const muster_optimizer_rule* rule,
                                    muster_optimizer** optimizer);

// A collective, after muster_reducer_finish(): updates all parameters on all ranks. Gradients mean nothing until the
// next backward pass has written them.
muster_status muster_optimizer_step(muster_optimizer* optimizer);
muster_status muster_optimizer_set_learning_rate(muster_optimizer* optimizer, double learning_rate);

// For checkpoints: the state that this rank keeps of some neighbouring elements of one parameter. The pieces of all
// ranks make up each parameter exactly once. The memory is the optimizer's, the GPU's over NCCL, and may be written.
typedef struct muster_optimizer_piece {
    size_t size;
    int parameter;
    size_t offset;      // elements from the parameter's begin
    size_t count;       // of each of the three arrays
    float* values;      // the parameter, before rounding to its type
    float* first;       // momentum, or Adam's first moment; NULL for SGD without momentum
    float* second;      // Adam's second moment; NULL for SGD
    uint64_t* updates;  // of this parameter so far; shared by the pieces of one parameter on one rank
} muster_optimizer_piece;

muster_status muster_optimizer_piece_count(muster_optimizer* optimizer, size_t* count);
muster_status muster_optimizer_get_piece(muster_optimizer* optimizer, size_t index, muster_optimizer_piece* piece);

// A collective, after pieces were written: the parameters on all ranks become what they say.
muster_status muster_optimizer_reload(muster_optimizer* optimizer);

muster_status muster_optimizer_release(muster_optimizer* optimizer);

// ---- synchronised batch normalisation, since version 2 ----
//
// Both are collectives on arrays of the host, one value for each channel. Give them a communicator of their own
// (muster_communicator_split()): they come in the middle of passes where the reducer uses the other one.

// In the forward pass: the statistics of this rank's `*count` values of each channel (which may be 0) become those of
// all ranks' values together. The variance is divided by the count, not by one less.
muster_status muster_batch_statistics(muster_communicator* communicator, float* mean, float* variance,
                                      size_t channel_count, uint64_t* count);

// In the backward pass: the sums over all ranks, of the output's gradient, and of it times (input - mean).
muster_status muster_batch_gradients(muster_communicator* communicator, float* sum_gradient, float* sum_product,
                                     size_t channel_count);

#ifdef __cplusplus
}
#endif

#include "muster/muster_checkpoint.h"
#include "muster/muster_exchange.h"
#include "muster/muster_sampler.h"

#endif
