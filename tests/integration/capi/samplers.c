// The samplers of the C API, used well and badly.
#include <stdint.h>

#include "expect.h"

#define INVALID(call, words) BAD(call, MUSTER_INVALID_ARGUMENT, words)

static void distributed(void) {
    muster_distributed_sampler_options options = {
        .size = sizeof options, .sample_count = 10, .world_size = 4, .rank = 3};
    muster_distributed_sampler* sampler = NULL;
    int64_t indices[3] = {-1, -1, -1};
    size_t count = 0;
    uint64_t size = 0;
    int repeated = -1;
    options.sequential = 1;
    GOOD(muster_distributed_sampler_make(&options, &sampler));
    GOOD(muster_distributed_sampler_size(sampler, &size));
    EXPECT(size == 3);
    GOOD(muster_distributed_sampler_indices(sampler, NULL, 0, &count));
    EXPECT(count == 3);
    BAD(muster_distributed_sampler_indices(sampler, indices, 2, NULL), MUSTER_LIMIT_EXCEEDED,
        "3 indices, and room for 2");
    EXPECT(indices[0] == -1);
    GOOD(muster_distributed_sampler_indices(sampler, indices, 3, &count));
    EXPECT(indices[0] == 3 && indices[1] == 7 && indices[2] == 1);
    GOOD(muster_distributed_sampler_set_epoch(sampler, 1));
    GOOD(muster_distributed_sampler_order_repeated(sampler, &repeated));
    EXPECT(repeated == 0);
    INVALID(muster_distributed_sampler_size(sampler, NULL), "`count` is NULL");
    INVALID(muster_distributed_sampler_order_repeated(sampler, NULL), "`repeated` is NULL");
    GOOD(muster_distributed_sampler_release(sampler));
    INVALID(muster_distributed_sampler_set_epoch(sampler, 1), "not a valid distributed sampler, or already released");
    GOOD(muster_distributed_sampler_release(NULL));
}

static void mistake_options(void) {
    muster_distributed_sampler* distributed = (muster_distributed_sampler*)1;
    muster_distributed_sampler_options options = {.size = sizeof options, .sample_count = -1};
    INVALID(muster_distributed_sampler_make(&options, NULL), "`sampler` is NULL");
    INVALID(muster_distributed_sampler_make(&options, &distributed),
            "the number of samples is -1; it cannot be negative");
    EXPECT(distributed == NULL);
    options.sample_count = 10;
    options.world_size = -2;
    INVALID(muster_distributed_sampler_make(&options, &distributed), "a world of -2; it must be at least 1");
    options.world_size = 2;
    options.rank = 2;
    INVALID(muster_distributed_sampler_make(&options, &distributed), "rank 2 is not in a world of 2");
    options.rank = 0;
    options.drop_last = 2;
    INVALID(muster_distributed_sampler_make(&options, &distributed), "2 is not a valid value of drop_last");
    options.drop_last = 0;
    options.sample_count = INT64_MAX;
    BAD(muster_distributed_sampler_make(&options, &distributed), MUSTER_LIMIT_EXCEEDED, "too many for torch's order");

    muster_elastic_sampler* elastic = NULL;
    muster_elastic_sampler_options wanted = {.size = sizeof wanted, .sample_count = 10, .batch_size = 0};
    INVALID(muster_elastic_sampler_make(&wanted, NULL), "`sampler` is NULL");
    INVALID(muster_elastic_sampler_make(&wanted, &elastic), "the batch size is 0; it must be at least 1");
    wanted.batch_size = -4;
    INVALID(muster_elastic_sampler_make(&wanted, &elastic), "the batch size is -4; it cannot be negative");
    wanted.batch_size = 4;
    wanted.sample_count = -10;
    INVALID(muster_elastic_sampler_make(&wanted, &elastic), "the number of samples is -10");
    wanted.sample_count = 10;
    wanted.order = 3;
    INVALID(muster_elastic_sampler_make(&wanted, &elastic), "3 is not a valid order of samples; valid are 0 to 2");
    wanted.order = MUSTER_SAMPLES_TORCH;
    wanted.deal = -1;
    INVALID(muster_elastic_sampler_make(&wanted, &elastic), "-1 is not a valid value of deal");
    wanted.deal = MUSTER_DEAL_STRIDED;
    wanted.tail = 3;
    INVALID(muster_elastic_sampler_make(&wanted, &elastic), "3 is not a valid tail");
}

static void mistake_steps(muster_elastic_sampler* sampler) {
    muster_sample_step step = {.size = sizeof step};
    muster_sample_step unset = {.size = 0};
    int64_t indices[4];
    INVALID(muster_elastic_sampler_next(sampler, NULL), "to fill is NULL");
    INVALID(muster_elastic_sampler_next(sampler, &unset), "size is not set");
    INVALID(muster_elastic_sampler_commit(sampler, NULL), "`step` is NULL");
    INVALID(muster_elastic_sampler_commit(sampler, &unset), "size is not set");
    INVALID(muster_elastic_sampler_commit(sampler, &step), "does not belong to this sampler");
    INVALID(muster_elastic_sampler_after(sampler, &step, &step), "does not belong to this sampler");
    GOOD(muster_elastic_sampler_next(sampler, &step));
    INVALID(muster_elastic_sampler_indices(sampler, &step, 2, 2, indices, 4, NULL), "rank 2 is not in a world of 2");
    INVALID(muster_elastic_sampler_indices(sampler, &step, 0, 0, indices, 4, NULL), "rank 0 is not in a world of 0");
    BAD(muster_elastic_sampler_indices(sampler, &step, 0, 1, indices, 3, NULL), MUSTER_LIMIT_EXCEEDED, "room for 3");
    INVALID(muster_elastic_sampler_set_batch_size(sampler, 0), "the batch size is 0");
    INVALID(muster_elastic_sampler_set_batch_size(sampler, -1), "the batch size is -1");
    INVALID(muster_elastic_sampler_load_state(sampler, NULL), "`state` is NULL");
    BAD(muster_elastic_sampler_load_state(sampler, "{\"version\":1}"), MUSTER_BAD_FRAME, "field 'samples' is missing");
    INVALID(muster_elastic_sampler_steps_left(sampler, NULL), "`steps` is NULL");
    INVALID(muster_elastic_sampler_sample_seed(sampler, 0, 0, NULL), "`seed` is NULL");
    step.first = 4;
    BAD(muster_elastic_sampler_commit(sampler, &step), MUSTER_REFUSED, "the next one is at place 0 of epoch 0");
}

static void elastic(void) {
    muster_elastic_sampler_options options = {.size = sizeof options, .sample_count = 10, .batch_size = 4};
    muster_elastic_sampler* sampler = NULL;
    muster_sample_step step = {.size = sizeof step};
    muster_sample_step later = {.size = sizeof later};
    int64_t indices[4] = {0, 0, 0, 0};
    size_t count = 0, needed = 0;
    uint64_t steps = 0, seed = 0;
    char state[256];
    options.order = MUSTER_SAMPLES_SEQUENTIAL;
    options.deal = MUSTER_DEAL_CONTIGUOUS;
    GOOD(muster_elastic_sampler_make(&options, &sampler));
    mistake_steps(sampler);
    GOOD(muster_elastic_sampler_next(sampler, &step));
    GOOD(muster_elastic_sampler_after(sampler, &step, &later));
    EXPECT(later.first == 4 && later.count == 4 && later.epoch == 0 && later.ends_epoch == 0);
    GOOD(muster_elastic_sampler_indices(sampler, &later, 1, 2, indices, 4, &count));
    EXPECT(count == 2 && indices[0] == 6 && indices[1] == 7);
    GOOD(muster_elastic_sampler_commit(sampler, &step));
    GOOD(muster_elastic_sampler_steps_left(sampler, &steps));
    EXPECT(steps == 2);
    GOOD(muster_elastic_sampler_set_batch_size(sampler, 6));
    GOOD(muster_elastic_sampler_next(sampler, &step));
    EXPECT(step.first == 4 && step.count == 6 && step.ends_epoch == 1);
    GOOD(muster_elastic_sampler_state(sampler, NULL, 0, &needed));
    GOOD(muster_elastic_sampler_state(sampler, state, sizeof state, NULL));
    EXPECT(strlen(state) + 1 == needed);
    GOOD(muster_elastic_sampler_commit(sampler, &step));
    GOOD(muster_elastic_sampler_load_state(sampler, state));
    GOOD(muster_elastic_sampler_next(sampler, &step));
    EXPECT(step.epoch == 0 && step.first == 4);
    GOOD(muster_elastic_sampler_sample_seed(sampler, 1, 2, &seed));
    EXPECT(seed != 0);
    GOOD(muster_elastic_sampler_release(sampler));
    INVALID(muster_elastic_sampler_next(sampler, &step), "not a valid elastic sampler, or already released");
    INVALID(muster_elastic_sampler_commit((muster_elastic_sampler*)77777, &step), "not a valid elastic sampler");
}

int main(void) {
    distributed();
    mistake_options();
    elastic();
    printf("rank 0 of 1: %d checks\n", expect_count);
    return 0;
}
