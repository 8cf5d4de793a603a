// The gradient reducer through the C API: a backward pass by hand, with everything that the header offers.
#include <math.h>
#include <stdint.h>

#include "expect.h"

enum { ROWS = 300, COLUMNS = 7, BIAS = 5 };

struct model {
    float weight[ROWS * COLUMNS];
    double bias[BIAS];
    muster_reducer* reducer;
};

static void make_model(struct job job, struct model* model, const muster_reducer_options* options) {
    static const int64_t weight_shape[] = {ROWS, COLUMNS}, bias_shape[] = {BIAS};
    for (int i = 0; i < ROWS * COLUMNS; ++i) model->weight[i] = (float)(i + 100 * job.place.rank);
    for (int i = 0; i < BIAS; ++i) model->bias[i] = job.place.rank;
    const muster_parameter parameters[] = {
        {"weight", weight_shape, 2, MUSTER_F32, model->weight},
        {"bias", bias_shape, 1, MUSTER_F64, model->bias},
    };
    GOOD(muster_reducer_make(job.world, parameters, 2, options, &model->reducer));
    for (int i = 0; i < ROWS * COLUMNS; ++i) EXPECT(model->weight[i] == (float)i);  // rank 0's
    for (int i = 0; i < BIAS; ++i) EXPECT(model->bias[i] == 0);
}

// Every element of rank r's gradients is r + 1; the bias is used where asked.
static void fill_and_mark(struct job job, struct model* model, int with_bias) {
    void* data = NULL;
    size_t count = 0;
    GOOD(muster_reducer_gradient(model->reducer, 1, &data, &count));
    EXPECT(count == BIAS);
    for (size_t i = 0; i < count && with_bias; ++i) ((double*)data)[i] = job.place.rank + 1;
    if (with_bias) GOOD(muster_reducer_mark_ready(model->reducer, 1));
    GOOD(muster_reducer_gradient(model->reducer, 0, &data, &count));
    EXPECT(count == ROWS * COLUMNS);
    for (size_t i = 0; i < count; ++i) ((float*)data)[i] = (float)(job.place.rank + 1);
    GOOD(muster_reducer_mark_ready(model->reducer, 0));
}

static float weight_gradient(struct model* model) {
    void* data = NULL;
    GOOD(muster_reducer_gradient(model->reducer, 0, &data, NULL));
    return *(float*)data;
}

static int near(double value, double expected, double tolerance) {
    return fabs(value - expected) <= tolerance * fabs(expected);
}

// With `rank + 1` samples on rank r the average is sum((r+1)^2) / sum(r+1) = (2 world + 1) / 3.
static double weighted_average(struct job job) {
    return (2.0 * job.place.world_size + 1) / 3;
}

static void average(struct job job) {
    struct model model;
    make_model(job, &model, NULL);
    for (int step = 0; step < 20; ++step) {
        int moved = -1;
        GOOD(muster_reducer_begin_step(model.reducer, (float)(job.place.rank + 1), &moved));
        EXPECT(moved == 0 || moved == 1);
        fill_and_mark(job, &model, step % 2);
        GOOD(muster_reducer_finish(model.reducer));
        EXPECT(near(weight_gradient(&model), weighted_average(job), 1e-6));
        int used = -1;
        GOOD(muster_reducer_used(model.reducer, 1, &used));
        EXPECT(used == step % 2);
    }
    double norm = 0, again = 0;
    GOOD(muster_reducer_clip_grad_norm(model.reducer, 1, &norm));
    EXPECT(near(norm, weighted_average(job) * sqrt(ROWS * COLUMNS + BIAS), 1e-5));
    GOOD(muster_reducer_clip_grad_norm(model.reducer, 1, &again));
    EXPECT(near(again, 1, 1e-4));
    GOOD(muster_reducer_release(model.reducer));
}

static void accumulate(struct job job) {
    struct model model;
    make_model(job, &model, NULL);
    GOOD(muster_reducer_begin_local_step(model.reducer, NULL));
    fill_and_mark(job, &model, 1);
    GOOD(muster_reducer_finish(model.reducer));
    EXPECT(weight_gradient(&model) == (float)(job.place.rank + 1));
    GOOD(muster_reducer_zero_gradients(model.reducer));
    EXPECT(weight_gradient(&model) == 0);
    GOOD(muster_reducer_release(model.reducer));
}

// Another reducer goes on with what the model's has learned and holds back.
static void keep_and_restore(struct job job, struct model* model, const muster_reducer_options* options) {
    muster_reducer_state state = {.size = sizeof state}, again = {.size = sizeof again};
    struct model next;
    BAD(muster_reducer_keep(model->reducer, NULL), MUSTER_INVALID_ARGUMENT, "is NULL");
    GOOD(muster_reducer_keep(model->reducer, &state));
    EXPECT(state.plan[0] != 0);
    EXPECT((state.own_size > 0) == (options->wire == MUSTER_WIRE_INT8 || options->wire == MUSTER_WIRE_POWER));
    make_model(job, &next, options);
    GOOD(muster_reducer_restore(next.reducer, NULL));
    GOOD(muster_reducer_restore(next.reducer, &state));
    GOOD(muster_reducer_keep(next.reducer, &again));
    EXPECT(strcmp(state.plan, again.plan) == 0 && state.own_size == again.own_size);
    EXPECT(state.own_size == 0 || memcmp(state.own, again.own, state.own_size) == 0);
    state.plan = "no plan";
    BAD(muster_reducer_restore(next.reducer, &state), MUSTER_INVALID_ARGUMENT, "");
    state.own = NULL;
    state.own_size = 1;
    BAD(muster_reducer_restore(next.reducer, &state), MUSTER_INVALID_ARGUMENT, "`own` is NULL");
    GOOD(muster_reducer_release(next.reducer));
}

static void compress(struct job job) {
    for (int wire = MUSTER_WIRE_SAME; wire <= MUSTER_WIRE_POWER; ++wire) {
        const muster_reducer_options options = {.size = sizeof options,
                                                .wire = wire,
                                                .bucket_cap_mb = wire == 0 ? MUSTER_BUCKET_AUTOMATIC : 0.25,
                                                .order = MUSTER_ORDER_REGISTERED,
                                                .power_start_step = 1};
        struct model model;
        make_model(job, &model, &options);
        for (int step = 0; step < 3; ++step) {
            GOOD(muster_reducer_begin_step(model.reducer, (float)(job.place.rank + 1), NULL));
            fill_and_mark(job, &model, 1);
            GOOD(muster_reducer_finish(model.reducer));
            EXPECT(near(weight_gradient(&model), weighted_average(job), 0.02));
        }
        char text[200];
        static const char* const words[] = {"2 parameters", "wire bf16", "wire f16", "wire int8", "rank 2"};
        GOOD(muster_reducer_description(model.reducer, text, sizeof text, NULL));
        EXPECT(strstr(text, words[wire]) != NULL);
        keep_and_restore(job, &model, &options);
        GOOD(muster_reducer_release(model.reducer));
    }
}

struct uneven {
    struct job job;
    struct model model;
    int applied;
};

static muster_status apply(void* argument) {
    struct uneven* const uneven = argument;
    ++uneven->applied;
    return MUSTER_OK;
}

static muster_status refuse(void* argument) {
    (void)argument;
    return MUSTER_NOT_FOUND;
}

// Rank r has r + 2 batches.
static void run_out_of_batches(struct job job) {
    struct uneven uneven = {.job = job};
    const muster_reducer_options options = {.size = sizeof options, .uneven_inputs = 1};
    make_model(job, &uneven.model, &options);
    for (int step = 0; step < job.place.rank + 2; ++step) {
        GOOD(muster_reducer_begin_step(uneven.model.reducer, 1, NULL));
        fill_and_mark(job, &uneven.model, 1);
        GOOD(muster_reducer_finish(uneven.model.reducer));
    }
    BAD(muster_reducer_join(uneven.model.reducer, NULL, NULL), MUSTER_INVALID_ARGUMENT, "`apply` is NULL");
    GOOD(muster_reducer_join(uneven.model.reducer, apply, &uneven));
    EXPECT(uneven.applied == job.place.world_size - 1 - job.place.rank);
    GOOD(muster_reducer_release(uneven.model.reducer));
    if (job.place.world_size != 2) return;

    make_model(job, &uneven.model, &options);
    if (job.place.rank == 1) {
        GOOD(muster_reducer_begin_step(uneven.model.reducer, 1, NULL));
        fill_and_mark(job, &uneven.model, 1);
        GOOD(muster_reducer_finish(uneven.model.reducer));
    } else {
        BAD(muster_reducer_join(uneven.model.reducer, refuse, NULL), MUSTER_CANCELLED, "apply() returned 8");
    }
    GOOD(muster_reducer_release(uneven.model.reducer));
}

static void find_what_is_not_finite(struct job job) {
    const muster_reducer_options options = {.size = sizeof options, .finite_check = 1};
    struct model model;
    make_model(job, &model, &options);
    GOOD(muster_reducer_begin_step(model.reducer, 1, NULL));
    fill_and_mark(job, &model, 0);
    void* bias = NULL;
    GOOD(muster_reducer_gradient(model.reducer, 1, &bias, NULL));
    ((double*)bias)[2] = job.place.rank == 0 ? NAN : 0;
    GOOD(muster_reducer_mark_ready(model.reducer, 1));
    BAD(muster_reducer_finish(model.reducer), MUSTER_INVALID_ARGUMENT, "\"bias\"");
    EXPECT(strstr(muster_last_error(), "rank 0") != NULL);
    GOOD(muster_reducer_release(model.reducer));
}

static void look_at_the_cost(struct job job) {
    struct model model;
    make_model(job, &model, NULL);
    for (int step = 0; step < 30; ++step) {
        GOOD(muster_reducer_add_data_wait(model.reducer, 1));
        GOOD(muster_reducer_begin_step(model.reducer, 3, NULL));
        fill_and_mark(job, &model, 1);
        GOOD(muster_reducer_finish(model.reducer));
    }
    muster_step_cost cost = {.size = sizeof cost};
    GOOD(muster_reducer_last_step(model.reducer, &cost));
    EXPECT(cost.total_ns > 0 && cost.total_ns == cost.compute_ns + cost.data_wait_ns + cost.exposed_ns);
    EXPECT(cost.samples == 3 * job.place.world_size);

    GOOD(muster_reducer_mean_step(model.reducer, &cost));
    EXPECT(cost.total_ns > 0 && cost.samples == 3 * job.place.world_size && cost.bytes > 0);
    GOOD(muster_reducer_first_step(model.reducer, &cost));
    EXPECT(cost.total_ns > 0 && cost.samples == 3 * job.place.world_size);
    int64_t lateness = 0, least = INT64_MAX;
    for (int rank = 0; rank < job.place.world_size; ++rank) {
        GOOD(muster_reducer_lateness(model.reducer, rank, &lateness));
        EXPECT(lateness >= 0);
        if (lateness < least) least = lateness;
    }
    EXPECT(job.place.world_size > 1 || least == 0);
    BAD(muster_reducer_lateness(model.reducer, job.place.world_size, &lateness), MUSTER_INVALID_ARGUMENT, "no rank");

    const muster_baseline baseline = {
        .size = sizeof baseline, .world_size = 1, .samples_per_second = 1e9, .samples_per_step = 3};
    muster_scaling scaling = {.size = sizeof scaling};
    char text[2000] = "";
    GOOD(muster_reducer_scaling_report(model.reducer, &baseline, &scaling, text, sizeof text, NULL));
    EXPECT(scaling.weak > 0 && scaling.weak < 1);
    EXPECT((scaling.strong > 0) == (job.place.world_size == 1));
    EXPECT(scaling.samples_per_second > 0 && scaling.step_count > 0);
    EXPECT(strstr(text, "Weak scaling") != NULL);
    GOOD(muster_reducer_scaling_report(model.reducer, NULL, NULL, NULL, 0, NULL));
    GOOD(muster_reducer_release(model.reducer));
}

int main(void) {
    const struct job job = open_job();
    average(job);
    accumulate(job);
    compress(job);
    look_at_the_cost(job);
    find_what_is_not_finite(job);
    run_out_of_batches(job);  // leaves a dead communicator
    return close_job(job);
}
