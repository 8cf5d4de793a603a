// Checkpoints and preemption notices from C, used well and badly. Argument: a folder that is not there yet.
#include <signal.h>
#include <stdint.h>

#include "expect.h"

#define INVALID(call, words) BAD(call, MUSTER_INVALID_ARGUMENT, words)

static const int64_t weight_shape[] = {2, 2};
static const int64_t part_shape[] = {7};

// One replicated tensor, one of which each rank has a part, and a single number.
struct model {
    float weight[4];
    uint16_t part[7];
    int64_t count;
    muster_tensor tensors[3];
};

static void make_model(struct model* model, int step, const struct job* job) {
    const size_t begin = (size_t)(7 * job->place.rank / job->place.world_size);
    const size_t end = (size_t)(7 * (job->place.rank + 1) / job->place.world_size);
    memset(model, 0, sizeof *model);
    for (int i = 0; i < 4; ++i) model->weight[i] = (float)(step + i);
    for (size_t i = begin; i < end; ++i) model->part[i - begin] = (uint16_t)((size_t)(100 * step) + i);
    model->count = step;
    const muster_tensor tensors[3] = {
        {"weight", weight_shape, 2, MUSTER_F32, model->weight, MUSTER_REPLICATED, 0, 0},
        {"part", part_shape, 1, MUSTER_U16, model->part, MUSTER_SHARDED, begin, end - begin},
        {"count", NULL, 0, MUSTER_I64, &model->count, MUSTER_REPLICATED, 0, 0}};
    memcpy(model->tensors, tensors, sizeof tensors);
}

static void expect_step(const struct model* model, int step, const struct job* job) {
    struct model wanted;
    make_model(&wanted, step, job);
    EXPECT(memcmp(model->weight, wanted.weight, sizeof wanted.weight) == 0);
    EXPECT(memcmp(model->part, wanted.part, sizeof wanted.part) == 0);
    EXPECT(model->count == wanted.count);
}

static void mistake_opening(struct job job, const char* folder) {
    muster_checkpointer* checkpointer = (muster_checkpointer*)1;
    muster_checkpointer_options options = {.size = sizeof options, .directory = folder};
    INVALID(muster_checkpointer_open(job.context, &options, NULL), "`checkpointer` is NULL");
    INVALID(muster_checkpointer_open(NULL, &options, &checkpointer), "the context is NULL");
    EXPECT(checkpointer == NULL);
    INVALID(muster_checkpointer_open(job.context, NULL, &checkpointer), "no checkpoint directory");
    options.keep_last = -1;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "keep_last is -1");
    options.keep_last = 0;
    options.keep_every = -1;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "keep_every is -1");
    options.keep_every = 0;
    options.when_busy = 3;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "3 is not a valid value of when_busy");
    options.when_busy = 0;
    options.persist_timeout_ms = -1;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "-1 ms is not a valid timeout");
    options.size = 0;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "size is not set");
}

static void mistake_handles(void* wrong, const char* words) {
    muster_checkpoint_state state = {.size = sizeof state};
    int64_t step = 0;
    size_t count = 0;
    int number = 0;
    INVALID(muster_checkpointer_save(wrong, 0, &state, 0), words);
    INVALID(muster_checkpointer_snapshot(wrong, 0, &state), words);
    INVALID(muster_checkpointer_reserve(wrong, &state), words);
    INVALID(muster_checkpointer_copied_step(wrong, &step), words);
    INVALID(muster_checkpointer_load(wrong, &state, &step), words);
    INVALID(muster_checkpointer_load_as_saved(wrong, NULL, NULL, &step), words);
    INVALID(muster_checkpointer_load_clean(wrong, &state, &step, NULL, NULL, &step), words);
    INVALID(muster_checkpointer_loaded_value(wrong, "key", NULL, 0, NULL), words);
    INVALID(muster_checkpointer_loaded_key(wrong, 0, NULL, 0, NULL), words);
    INVALID(muster_checkpointer_loaded_rank_value(wrong, NULL, 0, NULL), words);
    INVALID(muster_checkpointer_loaded_rank_bytes(wrong, NULL, NULL), words);
    INVALID(muster_checkpointer_loaded_from(wrong, &number), words);
    INVALID(muster_checkpointer_loaded_path(wrong, NULL, 0, NULL), words);
    INVALID(muster_checkpointer_loaded_skipped(wrong, NULL, 0, NULL), words);
    INVALID(muster_checkpointer_finish(wrong), words);
    INVALID(muster_checkpointer_take_reports(wrong, &count), words);
    INVALID(muster_checkpointer_report(wrong, 0, NULL, NULL, 0, NULL), words);
    INVALID(muster_preemption_count(wrong, &number), words);
    INVALID(muster_preemption_agreed(wrong, &number), words);
}

static void mistake_states(muster_checkpointer* checkpointer, struct job job) {
    struct model model;
    make_model(&model, 0, &job);
    muster_checkpoint_state state = {.size = sizeof state, .tensors = model.tensors, .tensor_count = 3};
    muster_value values[2] = {{"key", "one"}, {"key", "two"}};
    int64_t step = 0;
    INVALID(muster_checkpointer_save(checkpointer, 0, NULL, 0), "`state` is NULL");
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 9), "9 is not a valid value of when_busy");
    INVALID(muster_checkpointer_save(checkpointer, -1, &state, 0), "a checkpoint of step -1");
    INVALID(muster_checkpointer_snapshot(checkpointer, 0, NULL), "`state` is NULL");
    INVALID(muster_checkpointer_snapshot(checkpointer, -1, &state), "a checkpoint of step -1");
    INVALID(muster_checkpointer_reserve(checkpointer, NULL), "`state` is NULL");
    INVALID(muster_checkpointer_copied_step(checkpointer, NULL), "`step` is NULL");
    INVALID(muster_checkpointer_load(checkpointer, &state, NULL), "`step` is NULL");
    INVALID(muster_checkpointer_load_as_saved(checkpointer, NULL, NULL, &step), "`place` is NULL");
    INVALID(muster_checkpointer_load_clean(checkpointer, &state, &step, NULL, NULL, NULL), "`step` is NULL");
    INVALID(muster_checkpointer_load_clean(checkpointer, &state, NULL, NULL, NULL, &step), "`clean_step` is NULL");
    INVALID(muster_checkpointer_load_clean(checkpointer, NULL, &step, NULL, NULL, &step), "`state` is NULL");
    state.rank_bytes_size = 1;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "`rank_bytes` is NULL");
    state.rank_bytes_size = 0;
    state.values = values;
    state.value_count = 2;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "the value 'key' occurs twice");
    values[1].key = NULL;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "value 1: `key` or `value` is NULL");
    state.value_count = 0;
    model.tensors[0].type = 15;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "tensor 'weight': 15 is not a valid tensor type");
    model.tensors[0].type = MUSTER_F32;
    model.tensors[0].placement = 2;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "2 is not a valid placement");
    model.tensors[0].placement = 0;
    model.tensors[0].shape = NULL;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "`shape` is NULL");
    model.tensors[0].shape = weight_shape;
    model.tensors[0].data = NULL;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "tensor 'weight' has no memory");
    model.tensors[1].begin = 7;
    model.tensors[1].count = 1;
    model.tensors[0].data = model.weight;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "tensor 'part' has a shard beyond its end");
    model.tensors[2].name = NULL;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "tensor 2: `name` is NULL");
    state.tensors = NULL;
    INVALID(muster_checkpointer_save(checkpointer, 0, &state, 0), "`tensors` is NULL");
}

static void save(muster_checkpointer* checkpointer, int step, struct job job) {
    struct model model;
    make_model(&model, step, &job);
    const muster_value values[2] = {{"cursor", "12"}, {"epoch", "3"}};
    const muster_checkpoint_state state = {sizeof state,
                                           model.tensors,
                                           3,
                                           values,
                                           2,
                                           job.place.rank == 0 ? "dice of 0" : "dice of 1",
                                           job.place.rank == 0 ? "held\0back" : "held\0bits",
                                           9};
    GOOD(muster_checkpointer_save(checkpointer, step, &state, MUSTER_BUSY_WAIT));
    memset(&model, 0xff, sizeof model);  // it was copied
    GOOD(muster_checkpointer_finish(checkpointer));
}

static void expect_report(muster_checkpointer* checkpointer, const char* path) {
    muster_save_report report = {.size = sizeof report};
    char text[4096];
    size_t count = 0;
    INVALID(muster_checkpointer_take_reports(checkpointer, NULL), "`count` is NULL");
    GOOD(muster_checkpointer_take_reports(checkpointer, &count));
    EXPECT(count == 2);
    GOOD(muster_checkpointer_report(checkpointer, 1, &report, text, sizeof text, NULL));
    EXPECT(report.step == 8 && report.persisted == 1 && report.bytes > 0 && report.persist_ms > 0);
    EXPECT(strcmp(text, path) == 0);
    BAD(muster_checkpointer_report(checkpointer, 2, &report, NULL, 0, NULL), MUSTER_NOT_FOUND, "there are 2 reports");
    INVALID(muster_checkpointer_report(checkpointer, 0, NULL, NULL, 0, NULL), "is NULL");
}

static void load(muster_checkpointer* checkpointer, const char* path, struct job job) {
    struct model model;
    make_model(&model, 0, &job);
    muster_checkpoint_state state = {.size = sizeof state, .tensors = model.tensors, .tensor_count = 3};
    int64_t step = 0;
    char text[4096];
    size_t needed = 0;
    GOOD(muster_checkpointer_load(checkpointer, &state, &step));
    EXPECT(step == 8);
    expect_step(&model, 8, &job);
    GOOD(muster_checkpointer_loaded_value(checkpointer, "cursor", text, sizeof text, NULL));
    EXPECT(strcmp(text, "12") == 0);
    BAD(muster_checkpointer_loaded_value(checkpointer, "course", NULL, 0, NULL), MUSTER_NOT_FOUND, "no value 'course'");
    INVALID(muster_checkpointer_loaded_value(checkpointer, NULL, NULL, 0, NULL), "`key` is NULL");
    GOOD(muster_checkpointer_loaded_key(checkpointer, 1, text, sizeof text, NULL));
    EXPECT(strcmp(text, "epoch") == 0);
    BAD(muster_checkpointer_loaded_key(checkpointer, 2, NULL, 0, NULL), MUSTER_NOT_FOUND, "there are 2 values");
    GOOD(muster_checkpointer_loaded_rank_value(checkpointer, text, sizeof text, &needed));
    EXPECT(strcmp(text, job.place.rank == 0 ? "dice of 0" : "dice of 1") == 0 && needed == 10);
    BAD(muster_checkpointer_loaded_rank_value(checkpointer, text, 4, NULL), MUSTER_LIMIT_EXCEEDED, "needs 10 bytes");
    const void* bytes = NULL;
    size_t size = 0;
    int from = -1;
    INVALID(muster_checkpointer_loaded_rank_bytes(checkpointer, NULL, &size), "`bytes` or `size` is NULL");
    GOOD(muster_checkpointer_loaded_rank_bytes(checkpointer, &bytes, &size));
    EXPECT(size == 9 && memcmp(bytes, job.place.rank == 0 ? "held\0back" : "held\0bits", size) == 0);
    INVALID(muster_checkpointer_loaded_from(checkpointer, NULL), "`from` is NULL");
    GOOD(muster_checkpointer_loaded_from(checkpointer, &from));
    EXPECT(from == MUSTER_FROM_SHARED);
    GOOD(muster_checkpointer_loaded_path(checkpointer, text, sizeof text, NULL));
    EXPECT(strcmp(text, path) == 0);
    GOOD(muster_checkpointer_loaded_skipped(checkpointer, text, sizeof text, NULL));
    EXPECT(strcmp(text, "") == 0);
    model.tensors[1].type = MUSTER_I16;
    INVALID(muster_checkpointer_load(checkpointer, &state, &step), "tensor 'part' is U16[7] there and I16[7] here");
    EXPECT(step == -1);
}

// Two saves, of which the second goes to this host's disk alone.
static void use_local_disk(const char* folder, struct job job) {
    char near[4096], shared[4096];
    snprintf(near, sizeof near, "%s.near", folder);
    snprintf(shared, sizeof shared, "%s.shared", folder);
    muster_checkpointer_options options = {
        .size = sizeof options, .directory = shared, .local_directory = near, .shared_every = -1};
    muster_checkpointer* checkpointer = NULL;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "shared_every is -1");
    options.shared_every = 2;
    options.copy_bytes_per_second = 65535;
    INVALID(muster_checkpointer_open(job.context, &options, &checkpointer), "at least 65536");
    options.copy_bytes_per_second = 65536;
    GOOD(muster_checkpointer_open(job.context, &options, &checkpointer));
    save(checkpointer, 8, job);
    save(checkpointer, 9, job);
    struct model model;
    make_model(&model, 0, &job);
    const muster_checkpoint_state state = {.size = sizeof state, .tensors = model.tensors, .tensor_count = 3};
    int64_t step = 0;
    int from = -1;
    char text[8] = "?";
    GOOD(muster_checkpointer_load(checkpointer, &state, &step));
    GOOD(muster_checkpointer_loaded_from(checkpointer, &from));
    GOOD(muster_checkpointer_loaded_path(checkpointer, text, sizeof text, NULL));
    EXPECT(step == 9 && from == MUSTER_FROM_LOCAL_DISK && text[0] == 0);
    expect_step(&model, 9, &job);
    GOOD(muster_checkpointer_release(checkpointer));
}

// Memory for a model that is not known before.
struct place {
    uint64_t memory[3][8];
    size_t count;
    int fail;
};

static muster_status put_somewhere(void* argument, muster_tensor* tensors, size_t count) {
    struct place* place = argument;
    place->count = count;
    for (size_t i = 0; i < count; ++i) tensors[i].data = place->memory[i];
    if (place->fail == 2) tensors[0].placement = 5;
    return place->fail == 1 ? MUSTER_OUT_OF_MEMORY : MUSTER_OK;
}

static void load_as_saved(muster_checkpointer* checkpointer) {
    struct place place;
    int64_t step = 0;
    memset(&place, 0, sizeof place);
    GOOD(muster_checkpointer_load_as_saved(checkpointer, put_somewhere, &place, &step));
    EXPECT(step == 8 && place.count == 3);  // in the order of names: count, part, weight
    const uint16_t* const part = (const uint16_t*)place.memory[1];
    const float* const weight = (const float*)place.memory[2];
    EXPECT(place.memory[0][0] == 8 && part[0] == 800 && part[6] == 806 && weight[3] == 11);
    place.fail = 1;
    BAD(muster_checkpointer_load_as_saved(checkpointer, put_somewhere, &place, &step), MUSTER_CANCELLED,
        "the function that places tensors returned out_of_memory");
    place.fail = 2;
    INVALID(muster_checkpointer_load_as_saved(checkpointer, put_somewhere, &place, &step),
            "5 is not a valid placement");
    EXPECT(step == -1);
}

static void watch(struct job job) {
    muster_preemption* notice = NULL;
    muster_preemption* second = NULL;
    const int signals[2] = {SIGUSR1, SIGUSR2}, wrong[1] = {SIGKILL};
    int count = 0, leave = 1;
    INVALID(muster_preemption_watch(job.context, NULL, 0, NULL), "`preemption` is NULL");
    INVALID(muster_preemption_watch(NULL, NULL, 0, &notice), "the context is NULL");
    INVALID(muster_preemption_watch(job.context, NULL, 1, &notice), "`signals` is NULL");
    INVALID(muster_preemption_watch(job.context, wrong, 1, &notice), "signal 9 cannot be handled");
    GOOD(muster_preemption_watch(job.context, signals, 2, &notice));
    BAD(muster_preemption_watch(job.context, NULL, 0, &second), MUSTER_ALREADY_EXISTS, "already");
    INVALID(muster_preemption_count(notice, NULL), "`count` is NULL");
    INVALID(muster_preemption_agreed(notice, NULL), "`leave` is NULL");
    GOOD(muster_preemption_agreed(notice, &leave));
    EXPECT(leave == 0);
    if (job.place.rank == job.place.world_size - 1) raise(SIGUSR2);
    GOOD(muster_preemption_agreed(notice, &leave));
    GOOD(muster_preemption_count(notice, &count));
    EXPECT(leave == 1 && count == (job.place.rank == job.place.world_size - 1));
    GOOD(muster_preemption_release(notice));
    GOOD(muster_preemption_release(NULL));
    INVALID(muster_preemption_count(notice, &count), "not a valid preemption notice, or already released");
}

int main(int argc, char** argv) {
    EXPECT(argc == 2);
    const struct job job = open_job();
    char noise[64] = "these bytes are no object of the library's";
    char path[4096];
    snprintf(path, sizeof path, "%s/step_00000008", argv[1]);
    mistake_opening(job, argv[1]);
    mistake_handles(NULL, "is NULL");
    mistake_handles(noise, "not a valid");
    const muster_checkpointer_options options = {.size = sizeof options, .directory = argv[1], .keep_last = 1};
    muster_checkpointer* checkpointer = NULL;
    int64_t step = 0;
    const muster_checkpoint_state nothing = {.size = sizeof nothing};
    GOOD(muster_checkpointer_open(job.context, &options, &checkpointer));
    GOOD(muster_checkpointer_load(checkpointer, &nothing, &step));
    EXPECT(step == -1);
    mistake_states(checkpointer, job);
    save(checkpointer, 4, job);
    save(checkpointer, 8, job);
    expect_report(checkpointer, path);
    load(checkpointer, path, job);
    load_as_saved(checkpointer);
    watch(job);
    use_local_disk(argv[1], job);
    GOOD(muster_checkpointer_release(checkpointer));
    INVALID(muster_checkpointer_release(checkpointer), "not a valid checkpointer, or already released");
    return close_job(job);
}
