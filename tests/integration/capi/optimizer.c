// The sharded optimizer of the C API against the same arithmetic in this file, and its pieces as a checkpoint.
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "expect.h"

enum { COUNT = 37 };

struct model {
    float weight[COUNT];
    float bias[1];
    muster_reducer* reducer;
    muster_optimizer* optimizer;
};

static void make_model(struct job job, struct model* model, const muster_optimizer_rule* rule) {
    const muster_reducer_options options = {.size = sizeof options, .own_piece = 1};
    const int64_t shape[] = {COUNT};
    const muster_parameter parameters[] = {{"weight", shape, 1, MUSTER_F32, model->weight},
                                           {"bias", NULL, 0, MUSTER_F32, model->bias}};
    for (int i = 0; i < COUNT; ++i) model->weight[i] = 1 + 0.1F * (float)i;
    model->bias[0] = -2;
    GOOD(muster_reducer_make(job.world, parameters, 2, &options, &model->reducer));
    GOOD(muster_optimizer_make(model->reducer, rule, &model->optimizer));
}

// The gradient of element i is i + rank.
static void step(struct job job, struct model* model) {
    GOOD(muster_reducer_begin_step(model->reducer, 1, NULL));
    for (int parameter = 1; parameter >= 0; --parameter) {
        void* data = NULL;
        size_t count = 0;
        GOOD(muster_reducer_gradient(model->reducer, parameter, &data, &count));
        for (size_t i = 0; i < count; ++i) ((float*)data)[i] = (float)i + (float)job.place.rank;
        GOOD(muster_reducer_mark_ready(model->reducer, parameter));
    }
    GOOD(muster_reducer_finish(model->reducer));
    GOOD(muster_optimizer_step(model->optimizer));
}

static int is_near(double value, double expected) {
    return fabs(value - expected) <= 1e-4 * (1 + fabs(expected));
}

static void train_with_sgd(struct job job) {
    muster_optimizer_rule rule = {.size = sizeof rule};
    GOOD(muster_optimizer_defaults(MUSTER_SGD, &rule));
    EXPECT(rule.kind == MUSTER_SGD && rule.learning_rate == 0.01 && rule.momentum == 0);
    rule.learning_rate = 0.5;
    struct model model;
    make_model(job, &model, &rule);
    step(job, &model);
    GOOD(muster_optimizer_set_learning_rate(model.optimizer, 0.25));
    step(job, &model);
    const double mean = 0.5 * (job.place.world_size - 1);
    for (int i = 0; i < COUNT; ++i) EXPECT(is_near(model.weight[i], 1 + 0.1 * i - 0.75 * (i + mean)));
    EXPECT(is_near(model.bias[0], -2 - 0.75 * mean));
    GOOD(muster_reducer_release(model.reducer));  // the optimizer keeps it
    GOOD(muster_optimizer_reload(model.optimizer));
    GOOD(muster_optimizer_release(model.optimizer));
}

// The first update of Adam goes by the learning rate in the gradient's direction, whatever its size.
static void keep_pieces(struct job job) {
    muster_optimizer_rule rule = {.size = sizeof rule};
    GOOD(muster_optimizer_defaults(MUSTER_ADAMW, &rule));
    EXPECT(rule.beta1 == 0.9 && rule.beta2 == 0.999 && rule.epsilon == 1e-8 && rule.weight_decay == 0.01);
    rule.weight_decay = 0;
    struct model model;
    make_model(job, &model, &rule);
    step(job, &model);
    EXPECT(is_near(model.weight[5], 1.5 - 1e-3));
    size_t count = 0;
    GOOD(muster_optimizer_piece_count(model.optimizer, &count));
    int64_t elements = 0;
    for (size_t i = 0; i < count; ++i) {
        muster_optimizer_piece piece = {.size = sizeof piece};
        GOOD(muster_optimizer_get_piece(model.optimizer, i, &piece));
        EXPECT(piece.first != NULL && piece.second != NULL && *piece.updates == 1);
        elements += (int64_t)piece.count;
        for (size_t k = 0; k < piece.count; ++k) {
            piece.values[k] = (float)(100 * piece.parameter) + (float)(piece.offset + k);
        }
    }
    GOOD(muster_optimizer_reload(model.optimizer));
    GOOD(muster_all_reduce(job.world, &elements, 1, MUSTER_I64, MUSTER_SUM, 0, NULL));
    EXPECT(elements == COUNT + 1);
    for (int i = 0; i < COUNT; ++i) EXPECT(model.weight[i] == (float)i);
    EXPECT(model.bias[0] == 100);

    muster_optimizer_piece piece = {.size = sizeof piece};
    BAD(muster_optimizer_get_piece(model.optimizer, count, &piece), MUSTER_INVALID_ARGUMENT, "there is no piece");
    BAD(muster_optimizer_set_learning_rate(model.optimizer, -1), MUSTER_INVALID_ARGUMENT, "-1 is not a learning rate");
    BAD(muster_optimizer_step((muster_optimizer*)(void*)model.reducer), MUSTER_INVALID_ARGUMENT,
        "not a valid optimizer");
    rule.kind = 3;
    muster_optimizer* other = NULL;
    BAD(muster_optimizer_make(model.reducer, &rule, &other), MUSTER_INVALID_ARGUMENT, "3 is not a valid optimizer");
    BAD(muster_optimizer_make(model.reducer, NULL, &other), MUSTER_INVALID_ARGUMENT, "`rule` is NULL");
    BAD(muster_optimizer_defaults(-1, &rule), MUSTER_INVALID_ARGUMENT, "-1 is not a valid optimizer");
    GOOD(muster_optimizer_release(model.optimizer));
    GOOD(muster_reducer_release(model.reducer));
}

// Version 1 of the options ended where version 2 has `padding`, which is then whatever lay on the stack.
static void be_an_older_program(struct job job) {
    float value = 0;
    const muster_parameter parameter = {"w", NULL, 0, MUSTER_F32, &value};
    muster_reducer_options options = {.size = offsetof(muster_reducer_options, own_piece), .padding = 77};
    muster_reducer* reducer = NULL;
    EXPECT(options.size == 64);
    options.own_piece = 9;  // beyond its end
    GOOD(muster_reducer_make(job.world, &parameter, 1, &options, &reducer));
    GOOD(muster_reducer_release(reducer));
}

static void need_own_pieces(struct job job) {
    float value = 0;
    const muster_parameter parameter = {"w", NULL, 0, MUSTER_F32, &value};
    muster_reducer* reducer = NULL;
    muster_optimizer* optimizer = NULL;
    muster_optimizer_rule rule = {.size = sizeof rule};
    GOOD(muster_optimizer_defaults(MUSTER_ADAM, &rule));
    GOOD(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer));
    BAD(muster_optimizer_make(reducer, &rule, &optimizer), MUSTER_INVALID_ARGUMENT, "own_piece");
    EXPECT(optimizer == NULL);
    GOOD(muster_optimizer_release(NULL));
    GOOD(muster_reducer_release(reducer));
}

// An infinity on the last rank only: all skip the step.
static void scale_losses(struct job job) {
    const muster_loss_scaler_options options = {.size = sizeof options, .initial_scale = 8, .growth_interval = 2};
    muster_loss_scaler* scaler = NULL;
    muster_loss_scale scale = {.size = sizeof scale};
    GOOD(muster_loss_scaler_make(&options, &scaler));
    float value = 0;
    const muster_parameter parameter = {"w", NULL, 0, MUSTER_F32, &value};
    muster_reducer* reducer = NULL;
    GOOD(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer));
    const float expected[] = {8, 16, 8, 8, 16};
    for (int step = 0; step < 5; ++step) {
        GOOD(muster_loss_scaler_state(scaler, &scale));
        GOOD(muster_reducer_begin_step(reducer, 1, NULL));
        void* data = NULL;
        size_t count = 0;
        GOOD(muster_reducer_gradient(reducer, 0, &data, &count));
        const int overflows = step == 2;
        *(float*)data = overflows && job.place.rank == job.place.world_size - 1 ? HUGE_VALF : 3 * scale.scale;
        GOOD(muster_reducer_mark_ready(reducer, 0));
        GOOD(muster_reducer_finish(reducer));
        int finite = -1;
        GOOD(muster_loss_scaler_unscale(scaler, reducer, &finite));
        EXPECT(finite == !overflows);
        if (finite) EXPECT(*(float*)data == 3);
        GOOD(muster_loss_scaler_update(scaler));
        GOOD(muster_loss_scaler_state(scaler, &scale));
        EXPECT(scale.scale == expected[step]);
    }
    BAD(muster_loss_scaler_update(scaler), MUSTER_INVALID_ARGUMENT, "without unscale()");
    scale.scale = 0;
    BAD(muster_loss_scaler_restore(scaler, &scale), MUSTER_INVALID_ARGUMENT, "the scale is 0");
    BAD(muster_loss_scaler_restore(scaler, NULL), MUSTER_INVALID_ARGUMENT, "`state` is NULL");
    scale.scale = 4;
    scale.growth_tracker = 1;
    GOOD(muster_loss_scaler_restore(scaler, &scale));
    GOOD(muster_reducer_release(reducer));
    GOOD(muster_loss_scaler_release(scaler));
}

int main(void) {
    const struct job job = open_job();
    train_with_sgd(job);
    keep_pieces(job);
    need_own_pieces(job);
    be_an_older_program(job);
    scale_losses(job);
    return close_job(job);
}
