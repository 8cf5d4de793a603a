// Handles and arguments that are wrong, in every function of the C API: an error each time, and the job goes on.
//
//   misuse          the above
//   misuse death    rank 1 leaves; the others must learn who it was
//   misuse late     rank 1 does not come to a barrier in time
//   misuse abort    rank 1 aborts
//   misuse models   rank 1 has another model
//   misuse refused  rank 1 gives arguments that are wrong by themselves
#include <stdint.h>
#include <unistd.h>

#include "expect.h"

#define INVALID(call, words) BAD(call, MUSTER_INVALID_ARGUMENT, words)

// By number. Programs keep and compare these names, which the library derives from its own.
static const char* const names[] = {"ok",
                                    "invalid_argument",
                                    "timed_out",
                                    "refused",
                                    "unreachable",
                                    "peer_closed",
                                    "bad_frame",
                                    "limit_exceeded",
                                    "not_found",
                                    "already_exists",
                                    "permission_denied",
                                    "cancelled",
                                    "unsupported",
                                    "io",
                                    "out_of_memory",
                                    "internal",
                                    "round_ended"};
enum { names_count = sizeof names / sizeof names[0] };

static void mistake_options(void) {
    uint64_t section = 7;
    INVALID(muster_section_enter(NULL, 0, &section), "`name`");
    EXPECT(section == 0);
    INVALID(muster_section_enter("evaluation", 0, NULL), "`section`");
    INVALID(muster_section_enter("evaluation", -1, &section), "`limit_ms` is -1");
    EXPECT(muster_section_enter("evaluation", 5, &section) == MUSTER_OK && section != 0);
    muster_section_leave(section);
    muster_section_leave(section);
    muster_heartbeat();
    muster_context* context = (muster_context*)1;
    muster_context_options options;
    memset(&options, 0, sizeof options);
    INVALID(muster_context_open(NULL, NULL), "muster_context_open: `context` is NULL");
    INVALID(muster_context_open(&options, &context), "size is not set");
    EXPECT(context == NULL);
    options.size = sizeof options;
    options.transport = 5;
    INVALID(muster_context_open(&options, &context), "5 is not a valid transport; valid are 0 to 4");
    options.transport = 0;
    options.meeting_timeout_ms = -1;
    INVALID(muster_context_open(&options, &context), "-1 ms is not a valid timeout");
    options.meeting_timeout_ms = INT64_MAX;
    INVALID(muster_context_open(&options, &context), "is not a valid timeout");

    // Of a later library, which knows one thing more.
    struct {
        muster_context_options known;
        int64_t unknown;
    } later;
    memset(&later, 0, sizeof later);
    later.known.size = sizeof later;
    later.unknown = 1;
    BAD(muster_context_open(&later.known, &context), MUSTER_UNSUPPORTED, "does not know");
}

// All functions that take only a handle and somewhere to put the answer.
static void mistake_handles(struct job job, void* wrong, const char* words) {
    muster_place place = {.size = sizeof place};
    muster_communicator* communicator = NULL;
    muster_memory* memory = NULL;
    int number = 0;
    int64_t time = 0;
    void* data = NULL;
    INVALID(muster_context_place(wrong, &place), words);
    INVALID(muster_context_world(wrong, &communicator), words);
    INVALID(muster_communicator_rank(wrong, &number), words);
    INVALID(muster_communicator_size(wrong, &number), words);
    INVALID(muster_communicator_transport(wrong, NULL, 0, NULL), words);
    INVALID(muster_communicator_split(wrong, 0, 0, &communicator), words);
    INVALID(muster_communicator_status(wrong), words);
    INVALID(muster_communicator_abort(wrong, "why"), words);
    INVALID(muster_allocate(wrong, 1, &memory), words);
    INVALID(muster_memory_data(wrong, &data, NULL), words);
    INVALID(muster_barrier(wrong, 0, NULL), words);
    INVALID(muster_work_wait(wrong), words);
    INVALID(muster_work_done(wrong, &number), words);
    INVALID(muster_work_took(wrong, &time), words);
    (void)job;
}

static void mistake_reducers(void* wrong, const char* words) {
    muster_step_cost cost = {.size = sizeof cost};
    int number = 0;
    void* data = NULL;
    int64_t wait = 0;
    INVALID(muster_reducer_begin_step(wrong, 1, NULL), words);
    INVALID(muster_reducer_begin_local_step(wrong, NULL), words);
    INVALID(muster_reducer_gradient(wrong, 0, &data, NULL), words);
    INVALID(muster_reducer_mark_ready(wrong, 0), words);
    INVALID(muster_reducer_finish(wrong), words);
    INVALID(muster_reducer_join(wrong, NULL, NULL), words);
    INVALID(muster_reducer_used(wrong, 0, &number), words);
    INVALID(muster_reducer_zero_gradients(wrong), words);
    INVALID(muster_reducer_clip_grad_norm(wrong, 1, NULL), words);
    INVALID(muster_reducer_description(wrong, NULL, 0, NULL), words);
    INVALID(muster_reducer_add_data_wait(wrong, 1), words);
    INVALID(muster_reducer_last_step(wrong, &cost), words);
    INVALID(muster_reducer_first_step(wrong, &cost), words);
    INVALID(muster_reducer_mean_step(wrong, &cost), words);
    INVALID(muster_reducer_lateness(wrong, 0, &wait), words);
    INVALID(muster_reducer_scaling_report(wrong, NULL, NULL, NULL, 0, NULL), words);
}

static void release_twice(struct job job) {
    muster_communicator* again = NULL;
    GOOD(muster_context_world(job.context, &again));
    GOOD(muster_communicator_release(again));
    INVALID(muster_communicator_release(again), "not a valid communicator, or already released");
    INVALID(muster_barrier(again, 0, NULL), "not a valid communicator, or already released");
    INVALID(muster_context_release((muster_context*)(void*)job.world), "not a valid context");
    GOOD(muster_context_release(NULL));
    GOOD(muster_communicator_release(NULL));
    GOOD(muster_memory_release(NULL));
    GOOD(muster_work_release(NULL));
    GOOD(muster_reducer_release(NULL));
}

static void wrong_moves(struct job job) {
    const int rank = job.place.rank, world = job.place.world_size;
    double value = 1;
    size_t counts[16] = {0};
    EXPECT(world <= 16);
    INVALID(muster_gather(job.world, &value, NULL, 1, MUSTER_F64, rank, 0, NULL), "no buffer was given");
    INVALID(muster_gather(job.world, &value, &value, 1, MUSTER_F64, world, 0, NULL), "the ranks are 0 to");
    INVALID(muster_scatter(job.world, NULL, &value, 1, MUSTER_F64, rank, 0, NULL), "no buffer was given");
    INVALID(muster_reduce(job.world, NULL, &value, 1, MUSTER_F64, MUSTER_SUM, 0, 0, NULL), "no buffer was given");
    INVALID(muster_reduce(job.world, &value, &value, 1, MUSTER_F64, 77, 0, 0, NULL), "77 is not a valid reduction");
    INVALID(muster_all_to_all_uneven(job.world, &value, &value, MUSTER_F64, NULL, 0, NULL), "`parts` is NULL");
    muster_parts parts = {.sent_counts = counts};
    INVALID(muster_all_to_all_uneven(job.world, &value, &value, MUSTER_F64, &parts, 0, NULL), "size is not set");
    parts.size = sizeof parts;
    INVALID(muster_all_to_all_uneven(job.world, &value, &value, MUSTER_F64, &parts, 0, NULL),
            "`expected_counts` is NULL");
    parts.expected_counts = counts;
    counts[world - 1] = (size_t)-1;
    INVALID(muster_all_to_all_uneven(job.world, &value, &value, MUSTER_F64, &parts, 0, NULL),
            "more than any memory holds");
    counts[world - 1] = 1;
    INVALID(muster_all_to_all_uneven(job.world, NULL, &value, MUSTER_F64, &parts, 0, NULL), "no buffer was given");
}

static void mistake_operations(struct job job) {
    double value = 1;
    muster_work* work = NULL;
    INVALID(
        muster_all_reduce(job.world, &value, 1, MUSTER_BOOL, MUSTER_MAX, 0, NULL),
        "7 is not a valid data type; valid are MUSTER_F32 (0) to MUSTER_U8 (6) and MUSTER_I8 (8) to MUSTER_U64 (12)");
    INVALID(muster_all_reduce(job.world, &value, 1, 13, MUSTER_SUM, 0, NULL), "13 is not a valid data type");
    INVALID(muster_all_reduce(job.world, &value, 1, -1, MUSTER_SUM, 0, NULL), "-1 is not a valid data type");
    INVALID(muster_all_reduce(job.world, &value, 1, MUSTER_F64, 9, 0, NULL),
            "9 is not a valid reduction; valid are 0 to 8");
    INVALID(muster_all_reduce(job.world, &value, 1, MUSTER_F64, MUSTER_BOR, 0, NULL),
            "bitwise operations need integers");
    INVALID(muster_all_reduce(job.world, &value, 1, MUSTER_F64, MUSTER_PREMUL_SUM, 0, NULL), "all_reduce_premul()");
    INVALID(muster_all_reduce_premul(job.world, &value, 1, MUSTER_I64, 0.5, 0, NULL), "sum them, and multiply");
    INVALID(muster_all_reduce(job.world, &value, 1, MUSTER_I64, MUSTER_AVG, 0, NULL), "an average of integers");
    INVALID(muster_all_reduce(job.world, NULL, 1, MUSTER_F64, MUSTER_SUM, 0, NULL), "no buffer was given");
    INVALID(muster_all_reduce(job.world, &value, SIZE_MAX, MUSTER_F64, MUSTER_SUM, 0, NULL), "more than any memory");
    INVALID(muster_all_reduce(job.world, &value, 1, MUSTER_F64, MUSTER_SUM, -5, NULL), "-5 ms is not a valid timeout");
    INVALID(muster_all_reduce_weighted(job.world, &value, 1, MUSTER_F64, -1, 0, NULL),
            "the weight must be a finite number >= 0");
    INVALID(muster_broadcast(job.world, &value, 1, MUSTER_F64, job.place.world_size, 0, NULL), "the ranks are 0 to");
    INVALID(muster_send(job.world, &value, 1, MUSTER_F64, -1, 0, NULL), "the ranks are 0 to");
    INVALID(muster_receive(job.world, &value, 1, MUSTER_F64, job.place.rank, 0, NULL), "cannot send to itself");
    INVALID(muster_reduce_scatter(job.world, NULL, &value, 1, MUSTER_F64, 0, 0, NULL), "no buffer was given");
    INVALID(muster_all_gather(job.world, &value, NULL, 1, MUSTER_F64, 0, NULL), "no buffer was given");
    INVALID(muster_all_to_all(job.world, NULL, NULL, 1, MUSTER_F64, 0, NULL), "no buffer was given");
    // What is found wrong when it starts is the work's result.
    GOOD(muster_broadcast(job.world, &value, 1, MUSTER_F64, -1, 0, &work));
    INVALID(muster_work_wait(work), "the ranks are 0 to");
    INVALID(muster_work_done(work, NULL), "`done` is NULL");
    INVALID(muster_work_took(work, NULL), "`nanoseconds` is NULL");
    GOOD(muster_work_release(work));
    INVALID(muster_communicator_split(job.world, 0, 0, NULL), "`group` is NULL");
    INVALID(muster_allocate(job.world, 1, NULL), "`memory` is NULL");
    GOOD(muster_all_reduce(job.world, NULL, 0, MUSTER_F64, MUSTER_SUM, 0, NULL));
}

static void mistake_parameters(struct job job) {
    float data[4] = {0};
    const int64_t shape[] = {4};
    muster_parameter parameter = {"weight", shape, 1, MUSTER_F32, data};
    muster_reducer* reducer = NULL;
    muster_reducer_options options = {.size = sizeof options, .wire = 9};
    INVALID(muster_reducer_make(job.world, NULL, 1, NULL, &reducer), "`parameters` is NULL");
    INVALID(muster_reducer_make(job.world, &parameter, 1, NULL, NULL), "`reducer` is NULL");
    INVALID(muster_reducer_make(job.world, &parameter, 1, &options, &reducer), "9 is not a valid wire format");
    parameter.type = 13;
    INVALID(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer),
            "parameter \"weight\": 13 is not a valid data type");
    parameter.type = MUSTER_F32;
    parameter.shape = NULL;
    INVALID(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer), "`shape` is NULL");
    parameter.name = NULL;
    INVALID(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer), "parameter 0 has no name");
    EXPECT(reducer == NULL);

    parameter.name = "weight";
    parameter.shape = shape;
    GOOD(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer));
    int used = 0;
    size_t needed = 0;
    char text[4] = "";
    INVALID(muster_reducer_gradient(reducer, 1, NULL, NULL), "there is no parameter 1; they are 0 to 0");
    INVALID(muster_reducer_gradient(reducer, -1, NULL, NULL), "there is no parameter -1");
    INVALID(muster_reducer_used(reducer, 1, &used), "there is no parameter 1");
    INVALID(muster_reducer_mark_ready(reducer, 0), "marked ready before begin_step");
    INVALID(muster_reducer_mark_ready(reducer, 5), "there is no parameter 5");
    INVALID(muster_reducer_clip_grad_norm(reducer, -1, NULL), "norm > 0");
    INVALID(muster_reducer_add_data_wait(reducer, -1), "a wait is a time");
    BAD(muster_reducer_description(reducer, text, sizeof text, &needed), MUSTER_LIMIT_EXCEEDED, "the text needs");
    EXPECT(strcmp(text, "1 p") == 0 && needed > 20);
    muster_step_cost cost = {.size = 0};
    INVALID(muster_reducer_last_step(reducer, &cost), "size is not set");
    INVALID(muster_reducer_last_step(reducer, NULL), "is NULL");
    // The reducer keeps what it stands on.
    GOOD(muster_communicator_release(job.world));
    GOOD(muster_reducer_begin_step(reducer, 1, NULL));
    GOOD(muster_reducer_mark_ready(reducer, 0));
    INVALID(muster_reducer_mark_ready(reducer, 0), "marked ready twice");
    GOOD(muster_reducer_finish(reducer));
    GOOD(muster_reducer_release(reducer));
}

static int fail_together(struct job job, const char* how) {
    float values[2] = {1, 2};
    if (strcmp(how, "models") == 0) {
        const int64_t shape[] = {job.place.rank == 1 ? 2 : 1};
        const muster_parameter parameter = {"weight", shape, 1, MUSTER_F32, values};
        muster_reducer* reducer = NULL;
        INVALID(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer), "\"weight\"");
        EXPECT(strstr(muster_last_error(), "rank 1") != NULL);
        return close_job(job);
    }
    if (strcmp(how, "refused") == 0) {
        // The others learn of it at once, and the job goes on.
        const muster_parameter parameter = {"weight", NULL, 0, MUSTER_F32, values};
        const muster_reducer_options wrong = {.size = sizeof wrong, .wire = 9};
        muster_reducer* reducer = NULL;
        for (int round = 0; round < 3; ++round) {
            if (job.place.rank == 1) {
                INVALID(muster_reducer_make(job.world, round == 0 ? NULL : &parameter, 1, round == 1 ? &wrong : NULL,
                                            round == 2 ? NULL : &reducer),
                        round == 0   ? "`parameters` is NULL"
                        : round == 1 ? "9 is not a valid wire format"
                                     : "`reducer` is NULL");
            } else {
                INVALID(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer),
                        "rank 1 could not make its gradient reducer");
            }
            EXPECT(reducer == NULL);
        }
        GOOD(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer));
        GOOD(muster_reducer_release(reducer));
        return close_job(job);
    }
    muster_communicator* aside = NULL;  // where rank 1 waits until the others have given it up
    GOOD(muster_communicator_split(job.world, 0, 0, &aside));
    // Not before the others have theirs: a rank's end in a split would be the split's.
    char key[] = "split/0";
    key[6] = (char)('0' + job.place.rank);
    GOOD(muster_store_set(job.context, key, "", 0));
    for (int rank = 0; job.place.rank == 1 && rank < job.place.world_size; ++rank) {
        key[6] = (char)('0' + rank);
        size_t needed = 0;
        GOOD(muster_store_get(job.context, key, 60000, NULL, 0, &needed));
    }
    const int late = strcmp(how, "late") == 0, dies = strcmp(how, "death") == 0;
    if (job.place.rank == 1) {
        if (dies) _exit(0);
        if (late) GOOD(muster_barrier(aside, 0, NULL));
        if (!late) GOOD(muster_communicator_abort(job.world, "rank 1 has had enough"));
    }
    muster_status status = muster_barrier(job.world, late ? 5000 : 0, NULL);
    if (late && job.place.rank == 1) {
        // All have come to that barrier by now, so it may let this rank pass; the next one does not.
        if (status == MUSTER_OK) status = muster_barrier(job.world, 0, NULL);
        EXPECT(status != MUSTER_OK);
    } else {
        EXPECT(status == (late ? MUSTER_TIMED_OUT : dies ? MUSTER_PEER_CLOSED : MUSTER_CANCELLED));
    }
    EXPECT(strstr(muster_last_error(), "rank 1") != NULL);
    // The first failure stays.
    EXPECT(muster_communicator_status(job.world) == status);
    EXPECT(muster_barrier(job.world, 0, NULL) == status);
    if (late && job.place.rank != 1) GOOD(muster_barrier(aside, 0, NULL));
    GOOD(muster_communicator_release(aside));
    return close_job(job);
}

int main(int argc, char** argv) {
    EXPECT(strcmp(muster_last_error(), "") == 0);
    for (int status = 0; status < names_count; ++status) EXPECT(strcmp(muster_status_name(status), names[status]) == 0);
    EXPECT(strcmp(muster_status_name(-1), "unknown") == 0 && strcmp(muster_status_name(names_count), "unknown") == 0);
    if (argc > 1) return fail_together(open_job(), argv[1]);
    mistake_options();
    const struct job job = open_job();
    char noise[64] = "these bytes are no object of the library's";
    mistake_handles(job, NULL, "is NULL");
    mistake_handles(job, noise, "not a valid");
    mistake_reducers(NULL, "the reducer is NULL");
    mistake_reducers(noise, "not a valid reducer");
    mistake_reducers(job.world, "not a valid reducer");
    release_twice(job);
    mistake_operations(job);
    wrong_moves(job);
    mistake_parameters(job);
    printf("rank %d of %d: %d checks\n", job.place.rank, job.place.world_size, expect_count);
    return muster_context_release(job.context);
}
