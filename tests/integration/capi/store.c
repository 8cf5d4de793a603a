// The round's store and batch statistics through the C API.
#include <math.h>
#include <stdint.h>

#include "expect.h"

static void share_keys(struct job job) {
    const int world = job.place.world_size;
    char bytes[4] = {0};
    size_t needed = 0;
    int64_t sum = 0;
    int erased = -1;
    if (job.place.rank == 0) GOOD(muster_store_set(job.context, "test/key", "a\0b", 3));
    GOOD(muster_store_get(job.context, "test/key", 60000, NULL, 0, &needed));
    EXPECT(needed == 3);
    GOOD(muster_store_get(job.context, "test/key", 0, bytes, sizeof bytes, NULL));
    EXPECT(memcmp(bytes, "a\0b", 3) == 0);
    BAD(muster_store_get(job.context, "test/key", 0, bytes, 2, &needed), MUSTER_LIMIT_EXCEEDED, "3 bytes, not 2");
    GOOD(muster_store_add(job.context, "test/sum", job.place.rank + 1, &sum));
    GOOD(muster_barrier(job.world, 0, NULL));
    GOOD(muster_store_add(job.context, "test/sum", 0, &sum));
    EXPECT(sum == world * (world + 1) / 2);
    GOOD(muster_barrier(job.world, 0, NULL));
    if (job.place.rank == 0) {
        GOOD(muster_store_erase(job.context, "test/key", &erased));
        EXPECT(erased == 1);
        GOOD(muster_store_erase(job.context, "test/key", &erased));
        EXPECT(erased == 0);
        BAD(muster_store_get(job.context, "test/key", 50, NULL, 0, NULL), MUSTER_TIMED_OUT, "test/key");
    }
    BAD(muster_store_set(job.context, NULL, "x", 1), MUSTER_INVALID_ARGUMENT, "`key` is NULL");
    BAD(muster_store_set(job.context, "k", NULL, 1), MUSTER_INVALID_ARGUMENT, "`value` is NULL");
    BAD(muster_store_add((muster_context*)(void*)job.world, "k", 1, NULL), MUSTER_INVALID_ARGUMENT,
        "not a valid context");
}

// Rank r has r + 1 values in each channel, all of them r in the first and -r in the second.
static void normalise(struct job job) {
    const int rank = job.place.rank, world = job.place.world_size;
    float mean[2] = {(float)rank, (float)-rank}, variance[2] = {0, 0};
    uint64_t count = (uint64_t)rank + 1;
    double total = 0, sum = 0, squares = 0;
    for (int r = 0; r < world; ++r) {
        total += r + 1;
        sum += r * (r + 1.0);
        squares += (double)r * r * (r + 1.0);
    }
    GOOD(muster_batch_statistics(job.world, mean, variance, 2, &count));
    EXPECT(count == (uint64_t)total);
    EXPECT(fabs((double)mean[0] - sum / total) < 1e-6 && mean[1] == -mean[0]);
    EXPECT(fabs((double)variance[0] - (squares / total - pow(sum / total, 2))) < 1e-5 && variance[1] == variance[0]);
    float gradient[2] = {1, 2}, product[2] = {3, 4};
    GOOD(muster_batch_gradients(job.world, gradient, product, 2));
    EXPECT(gradient[1] == (float)(2 * world) && product[0] == (float)(3 * world));
    BAD(muster_batch_statistics(job.world, mean, NULL, 2, &count), MUSTER_INVALID_ARGUMENT, "no buffer was given");
    BAD(muster_batch_statistics(job.world, mean, variance, 2, NULL), MUSTER_INVALID_ARGUMENT, "`count` is NULL");
    BAD(muster_batch_gradients(NULL, gradient, product, 2), MUSTER_INVALID_ARGUMENT, "communicator is NULL");
}

// A world of one has keys of its own, so that a trainer need not ask how many it is.
static void keep_keys(struct job job) {
    char bytes[4] = {0};
    size_t needed = 0;
    int64_t sum = 0;
    int erased = -1;
    GOOD(muster_store_set(job.context, "k", "a\0b", 3));
    GOOD(muster_store_get(job.context, "k", 0, bytes, sizeof bytes, &needed));
    EXPECT(needed == 3 && memcmp(bytes, "a\0b", 3) == 0);
    BAD(muster_store_add(job.context, "k", 1, &sum), MUSTER_INVALID_ARGUMENT, "is not a number");
    GOOD(muster_store_add(job.context, "n", 2, NULL));
    GOOD(muster_store_add(job.context, "n", -5, &sum));
    EXPECT(sum == -3);
    GOOD(muster_store_get(job.context, "n", 0, bytes, sizeof bytes, &needed));
    EXPECT(needed == 2 && memcmp(bytes, "-3", 2) == 0);
    GOOD(muster_store_erase(job.context, "k", &erased));
    EXPECT(erased == 1);
    GOOD(muster_store_erase(job.context, "k", &erased));
    EXPECT(erased == 0);
    BAD(muster_store_get(job.context, "k", 50, NULL, 0, NULL), MUSTER_TIMED_OUT, "k was not set");
}

int main(void) {
    const struct job job = open_job();
    if (job.place.world_size > 1) {
        share_keys(job);
    } else {
        keep_keys(job);
    }
    normalise(job);
    return close_job(job);
}
