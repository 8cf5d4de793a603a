// Groups that meet by the caller's store, here the context's; tagged messages and collectives; receive from any rank;
// wrong arguments.
#include <stdint.h>

#include "expect.h"

static muster_status say(muster_status status, char* why, size_t capacity) {
    if (status != MUSTER_OK) snprintf(why, capacity, "%s", muster_last_error());
    return status;
}

static muster_status set(void* context, const char* key, const void* value, size_t size, char* why, size_t capacity) {
    return say(muster_store_set(context, key, value, size), why, capacity);
}

static muster_status get(void* context, const char* key, void (*take)(void*, const void*, size_t), void* to, char* why,
                         size_t capacity) {
    static char value[65536];
    size_t size = 0;
    const muster_status status = muster_store_get(context, key, 60000, value, sizeof value, &size);
    if (status == MUSTER_OK) take(to, value, size);
    return say(status, why, capacity);
}

static muster_status add(void* context, const char* key, int64_t delta, int64_t* sum, char* why, size_t capacity) {
    return say(muster_store_add(context, key, delta, sum), why, capacity);
}

static muster_status wait(void* context, const char* const* keys, size_t count, int64_t timeout_ms, char* why,
                          size_t capacity) {
    for (size_t i = 0; i < count; ++i) {
        const int64_t at_least = timeout_ms > 0 ? timeout_ms : 1;
        const muster_status status = muster_store_get(context, keys[i], at_least, NULL, 0, NULL);
        if (status != MUSTER_OK) return say(status, why, capacity);
    }
    return MUSTER_OK;
}

static void mistake(muster_group_options good) {
    muster_communicator* group = (muster_communicator*)1;
    const muster_status wrong = MUSTER_INVALID_ARGUMENT;
    BAD(muster_group_open(NULL, NULL), wrong, "`group` is NULL");
    BAD(muster_group_open(NULL, &group), wrong, "no name");
    EXPECT(group == NULL);
    muster_group_options bad = good;
    bad.rank = bad.group_size;
    BAD(muster_group_open(&bad, &group), wrong, "of a group of");
    bad = good;
    bad.group_size = bad.rank + 2;
    bad.store = NULL;
    BAD(muster_group_open(&bad, &group), wrong, "needs a store");
    muster_group_store lame = *good.store;
    lame.wait = NULL;
    bad.store = &lame;
    BAD(muster_group_open(&bad, &group), wrong, "lacks one of");
    int peer = 0;
    char byte = 0;
    BAD(muster_receive_any(NULL, &byte, 1, MUSTER_U8, 0, 0, &peer), wrong, "is NULL");
    BAD(muster_receive_tagged(NULL, &byte, 1, MUSTER_U8, 0, 0, 0, NULL), wrong, "is NULL");
    BAD(muster_send_tagged(NULL, &byte, 1, MUSTER_U8, 0, 0, 0, NULL), wrong, "is NULL");
}

static void send_messages(muster_communicator* group, int rank, int size) {
    int32_t value = 100 + rank;
    if (rank > 0) {
        GOOD(muster_send_tagged(group, &value, 1, MUSTER_I32, 0, 7, 0, NULL));
        GOOD(muster_send_tagged(group, &value, 1, MUSTER_I32, 0, 8, 0, NULL));
    } else {
        int seen = 0, peer = -1;
        for (int i = 1; i < size; ++i) {
            GOOD(muster_receive_any(group, &value, 1, MUSTER_I32, 7, 0, &peer));
            EXPECT(value == 100 + peer && (seen & 1 << peer) == 0);
            seen |= 1 << peer;
            GOOD(muster_receive_tagged(group, &value, 1, MUSTER_I32, peer, 8, 0, NULL));
            EXPECT(value == 100 + peer);
        }
    }
}

// Each rank allocates in its own way.
static void reduce_in_place(muster_communicator* group, int rank, int size) {
    enum { COUNT = 50000 };
    void* own = NULL;
    void* data = NULL;
    GOOD(muster_host_memory_allocate((size_t)rank * 100000, &own));
    GOOD(muster_host_memory_allocate(COUNT * sizeof(int32_t), &data));
    EXPECT(data != NULL && own != data && (uintptr_t)data % 256 == 0);
    for (int i = 0; i < COUNT; ++i) ((int32_t*)data)[i] = rank + i;
    GOOD(muster_all_reduce(group, data, COUNT, MUSTER_I32, MUSTER_SUM, 0, NULL));
    EXPECT(((int32_t*)data)[7] == size * (size - 1) / 2 + size * 7);
    GOOD(muster_host_memory_release(own));
    GOOD(muster_host_memory_release(data));
    GOOD(muster_host_memory_release(NULL));
    BAD(muster_host_memory_release(data), MUSTER_INVALID_ARGUMENT, "released already");
    BAD(muster_host_memory_allocate(1, NULL), MUSTER_INVALID_ARGUMENT, "`data` is NULL");
    BAD(muster_host_memory_allocate((size_t)-1, &data), MUSTER_LIMIT_EXCEEDED, "no host has as much");
    EXPECT(data == NULL);
}

// Rank 0 receives from any of the ranks that are still there. Rank 2 leaves first, then rank 1.
static void lose_members(struct job job, muster_group_options options) {
    muster_communicator* group = NULL;
    GOOD(muster_group_open(&options, &group));
    int32_t value = options.rank;
    int peer = -1;
    if (options.rank > 1) GOOD(muster_communicator_release(group));
    GOOD(muster_barrier(job.world, 0, NULL));
    if (options.rank == 1) {
        GOOD(muster_send(group, &value, 1, MUSTER_I32, 0, 0, NULL));
        GOOD(muster_communicator_release(group));
    }
    if (options.rank == 0) {
        if (options.group_size > 1) {
            GOOD(muster_receive_any(group, &value, 1, MUSTER_I32, 0, 0, &peer));
            EXPECT(value == 1 && peer == 1);
            BAD(muster_receive_any(group, &value, 1, MUSTER_I32, 0, 0, &peer), MUSTER_PEER_CLOSED,
                "all others have closed the communicator");
        }
        GOOD(muster_communicator_release(group));
    }
}

int main(void) {
    const struct job job = open_job();
    const int size = job.place.world_size, rank = job.place.rank;
    const muster_group_store store = {sizeof store, job.context, set, get, add, wait};
    muster_group_options options = {
        .size = sizeof options, .name = "all", .rank = rank, .group_size = size, .store = &store};
    mistake(options);
    for (int turn = 0; turn < 2; ++turn) {
        muster_communicator* group = NULL;
        GOOD(muster_group_open(&options, &group));
        int32_t sum = rank + turn;
        GOOD(muster_all_reduce(group, &sum, 1, MUSTER_I32, MUSTER_SUM, 0, NULL));
        EXPECT(sum == size * (size - 1) / 2 + size * turn);
        send_messages(group, rank, size);
        reduce_in_place(group, rank, size);
        GOOD(muster_barrier(group, 0, NULL));
        GOOD(muster_communicator_release(group));
    }
    if (size > 1) {
        // Collectives with different tags.
        muster_communicator* group = NULL;
        GOOD(muster_group_open(&options, &group));
        int32_t value = 1;
        muster_tag_collectives(7);
        GOOD(muster_all_reduce(group, &value, 1, MUSTER_I32, MUSTER_SUM, 0, NULL));
        muster_tag_collectives(rank == 0 ? 7 : 8);
        BAD(muster_all_reduce(group, &value, 1, MUSTER_I32, MUSTER_SUM, 0, NULL), MUSTER_INVALID_ARGUMENT, "tagged 7");
        muster_tag_collectives(0);
        GOOD(muster_communicator_release(group));
    }
    if (size > 1 && rank == 0) {
        // Nobody else comes.
        options.name = "alone";
        options.meeting_timeout_ms = 300;
        muster_communicator* group = NULL;
        BAD(muster_group_open(&options, &group), MUSTER_TIMED_OUT, "did not join");
        options.name = "all";
        options.meeting_timeout_ms = 0;
    }
    GOOD(muster_barrier(job.world, 0, NULL));
    // Those who came in vain and those who did not come meet.
    lose_members(job, options);
    GOOD(muster_barrier(job.world, 0, NULL));
    return close_job(job);
}
