// An exchange of the program's own: each rank sends the largest values of its gradients only, and keeps the rest for
// the next step (error feedback). Then exchanges that make mistakes.
#include <math.h>

#include "expect.h"

enum { COUNT = 1000, BUCKETS_MAX = 4 };

// What it keeps for a bucket. The buckets of this program stay as they are (MUSTER_ORDER_REGISTERED), so that it need
// not go by parameter.
struct place {
    size_t count;           // elements
    size_t sent;            // values that each rank sends
    float* rest;            // what was not sent so far
    float* values;          // what all ranks send: `sent` values of each, and its samples
    int32_t* where;         // where these values belong
    muster_memory* memory;  // of the values
};

struct sparse {
    muster_communicator* group;
    int rank;
    int world_size;
    double share;  // of the values is sent
    size_t bucket_count;
    struct place places[BUCKETS_MAX];
    muster_status fail_with;  // at stage 1, unless MUSTER_OK
};

static void give_back(struct sparse* own) {
    for (size_t i = 0; i < own->bucket_count; ++i) {
        free(own->places[i].rest);
        GOOD(muster_memory_release(own->places[i].memory));
        free(own->places[i].where);
    }
    own->bucket_count = 0;
}

static muster_status prepare(void* argument, const muster_bucket* const* buckets, size_t bucket_count) {
    struct sparse* const own = argument;
    if (bucket_count > BUCKETS_MAX) return MUSTER_LIMIT_EXCEEDED;
    give_back(own);  // what it had for other buckets
    own->bucket_count = bucket_count;
    const size_t world = (size_t)own->world_size;
    for (size_t i = 0; i < bucket_count; ++i) {
        struct place* const place = &own->places[i];
        EXPECT(buckets[i]->index == i && buckets[i]->type == MUSTER_F32 && buckets[i]->slice_count > 0);
        EXPECT(buckets[i]->slices[0].count <= buckets[i]->count);
        place->count = buckets[i]->count;
        place->sent = (size_t)ceil(own->share * (double)place->count);
        place->rest = calloc(place->count, sizeof *place->rest);
        void* memory = NULL;
        GOOD(muster_allocate(own->group, (place->sent + 1) * world * sizeof *place->values, &place->memory));
        GOOD(muster_memory_data(place->memory, &memory, NULL));
        place->values = memory;
        place->where = calloc(place->sent * world, sizeof *place->where);
    }
    return MUSTER_OK;
}

static int two(void* argument, const muster_bucket* bucket) {
    (void)argument;
    (void)bucket;
    return 2;
}

// Puts the `sent` largest of the gradients and the rest into this rank's piece, and the others into the rest.
static void choose(const struct sparse* own, const muster_bucket* bucket, const struct place* place) {
    float* const values = place->values + (size_t)own->rank * (place->sent + 1);
    int32_t* const where = place->where + (size_t)own->rank * place->sent;
    const float* const gradients = bucket->gradients;
    values[place->sent] = bucket->samples;
    if (bucket->samples == 0) {  // nothing of this rank counts, so the rest stays
        memset(values, 0, place->sent * sizeof *values);
        memset(where, 0, place->sent * sizeof *where);
        return;
    }
    for (size_t i = 0; i < place->count; ++i) place->rest[i] += gradients[i];
    for (size_t k = 0; k < place->sent; ++k) {
        size_t largest = 0;
        for (size_t i = 1; i < place->count; ++i)
            if (fabsf(place->rest[i]) > fabsf(place->rest[largest])) largest = i;
        values[k] = place->rest[largest];
        where[k] = (int32_t)largest;
        place->rest[largest] = 0;
    }
}

// The average of what came, weighted by samples.
static void add_up(const struct sparse* own, const muster_bucket* bucket, const struct place* place) {
    float* const gradients = bucket->gradients;
    memset(gradients, 0, place->count * sizeof *gradients);
    float samples = 0;
    for (int rank = 0; rank < own->world_size; ++rank) {
        const float* const values = place->values + (size_t)rank * (place->sent + 1);
        const int32_t* const where = place->where + (size_t)rank * place->sent;
        for (size_t k = 0; k < place->sent; ++k) gradients[where[k]] += values[place->sent] * values[k];
        samples += values[place->sent];
    }
    for (size_t i = 0; i < place->count; ++i) gradients[i] /= samples;
}

static muster_status advance(void* argument, const muster_bucket* bucket, int stage, muster_next* next) {
    struct sparse* const own = argument;
    const struct place* const place = &own->places[bucket->index];
    EXPECT(next->size == sizeof *next && next->collective == MUSTER_NEXT_NONE);
    if (stage == 0) {
        choose(own, bucket, place);
        next->collective = MUSTER_NEXT_ALL_GATHER;
        next->type = MUSTER_F32;
        next->count = place->sent + 1;
        next->input = place->values + (size_t)own->rank * next->count;
        next->output = place->values;
    } else if (stage == 1) {
        if (own->fail_with != MUSTER_OK) return own->fail_with;
        next->collective = MUSTER_NEXT_ALL_GATHER;
        next->type = MUSTER_I32;
        next->count = place->sent;
        next->input = place->where + (size_t)own->rank * next->count;
        next->output = place->where;
    } else {
        add_up(own, bucket, place);
    }
    return MUSTER_OK;
}

static size_t keep(void* argument, void* to) {
    const struct sparse* const own = argument;
    size_t size = 0;
    for (size_t i = 0; i < own->bucket_count; ++i) {
        const size_t own_size = own->places[i].count * sizeof *own->places[i].rest;
        if (to != NULL) memcpy((char*)to + size, own->places[i].rest, own_size);
        size += own_size;
    }
    return size;
}

static int restore(void* argument, const void* from, size_t size) {
    struct sparse* const own = argument;
    if (size != keep(own, NULL)) return 0;
    size_t at = 0;
    for (size_t i = 0; i < own->bucket_count; ++i) {
        const size_t own_size = own->places[i].count * sizeof *own->places[i].rest;
        memcpy(own->places[i].rest, (const char*)from + at, own_size);
        at += own_size;
    }
    return 1;
}

static struct sparse make_sparse(struct job job, double share) {
    const struct sparse own = {
        .group = job.world, .rank = job.place.rank, .world_size = job.place.world_size, .share = share};
    return own;
}

static muster_exchange exchange_of(struct sparse* own) {
    const muster_exchange exchange = {.size = sizeof exchange,
                                      .name = "largest values",
                                      .argument = own,
                                      .advance = advance,
                                      .collective_count = two,
                                      .prepare = prepare,
                                      .keep = keep,
                                      .restore = restore};
    return exchange;
}

static muster_status make(struct job job, const muster_exchange* exchange, int wire, muster_reducer** reducer) {
    static float weight[COUNT], bias[COUNT];
    static const int64_t shape[] = {COUNT};
    const muster_parameter parameters[] = {{"weight", shape, 1, MUSTER_F32, weight},
                                           {"bias", shape, 1, MUSTER_F32, bias}};
    const muster_reducer_options options = {.size = sizeof options,
                                            .bucket_cap_mb = 0.001,
                                            .first_bucket_mb = 0.001,
                                            .wire = wire,
                                            .order = MUSTER_ORDER_REGISTERED,
                                            .exchange = exchange};
    return muster_reducer_make(job.world, parameters, 2, &options, reducer);
}

// Element i of rank r's gradient in that step.
static float made_up(int rank, int step, int parameter, size_t i) {
    return sinf((float)(i + 1) * (float)(rank + 2) + (float)(step * (parameter + 3)));
}

static muster_status take_step(struct job job, muster_reducer* reducer, int step) {
    muster_status status = muster_reducer_begin_step(reducer, (float)(job.place.rank + 1), NULL);
    for (int parameter = 1; parameter >= 0 && status == MUSTER_OK; --parameter) {
        void* data = NULL;
        GOOD(muster_reducer_gradient(reducer, parameter, &data, NULL));
        for (size_t i = 0; i < COUNT; ++i) ((float*)data)[i] = made_up(job.place.rank, step, parameter, i);
        status = muster_reducer_mark_ready(reducer, parameter);
    }
    return status == MUSTER_OK ? muster_reducer_finish(reducer) : status;
}

static double average_of_all(struct job job, int step, int parameter, size_t i) {
    double sum = 0, samples = 0;
    for (int rank = 0; rank < job.place.world_size; ++rank) {
        sum += (rank + 1) * (double)made_up(rank, step, parameter, i);
        samples += rank + 1;
    }
    return sum / samples;
}

// Where everything is sent, it is the average.
static void send_all(struct job job) {
    struct sparse own = make_sparse(job, 1);
    const muster_exchange exchange = exchange_of(&own);
    muster_reducer* reducer = NULL;
    GOOD(make(job, &exchange, MUSTER_WIRE_SAME, &reducer));
    char text[200];
    GOOD(muster_reducer_description(reducer, text, sizeof text, NULL));
    EXPECT(strstr(text, "wire largest values") != NULL);
    for (int step = 0; step < 3; ++step) {
        GOOD(take_step(job, reducer, step));
        for (int parameter = 0; parameter < 2; ++parameter) {
            void* data = NULL;
            GOOD(muster_reducer_gradient(reducer, parameter, &data, NULL));
            for (size_t i = 0; i < COUNT; ++i)
                EXPECT(fabs(((float*)data)[i] - average_of_all(job, step, parameter, i)) < 1e-5);
        }
    }
    GOOD(muster_reducer_release(reducer));
    give_back(&own);
}

// Where a part is sent, a training that goes on from what was kept has the bits of one that never stopped.
static void go_on(struct job job) {
    struct sparse one = make_sparse(job, 0.05), other = make_sparse(job, 0.05);
    const muster_exchange first = exchange_of(&one), second = exchange_of(&other);
    muster_reducer *whole = NULL, *next = NULL;
    GOOD(make(job, &first, MUSTER_WIRE_SAME, &whole));
    for (int step = 0; step < 5; ++step) GOOD(take_step(job, whole, step));
    muster_reducer_state state = {.size = sizeof state};
    GOOD(muster_reducer_keep(whole, &state));
    EXPECT(state.own_size >= 2 * COUNT * sizeof(float));
    GOOD(make(job, &second, MUSTER_WIRE_SAME, &next));
    GOOD(muster_reducer_restore(next, &state));
    GOOD(take_step(job, whole, 5));
    GOOD(take_step(job, next, 5));
    for (int parameter = 0; parameter < 2; ++parameter) {
        void *data = NULL, *again = NULL;
        GOOD(muster_reducer_gradient(whole, parameter, &data, NULL));
        GOOD(muster_reducer_gradient(next, parameter, &again, NULL));
        EXPECT(memcmp(data, again, COUNT * sizeof(float)) == 0);
        int zeros = 0;
        for (size_t i = 0; i < COUNT; ++i) zeros += ((float*)data)[i] == 0;
        EXPECT(zeros >= COUNT / 2 && zeros < COUNT);
    }
    GOOD(muster_reducer_release(whole));
    GOOD(muster_reducer_release(next));
    give_back(&one);
    give_back(&other);
}

static muster_status ask_for_the_unknown(void* argument, const muster_bucket* bucket, int stage, muster_next* next) {
    if (stage == 0) return advance(argument, bucket, stage, next);
    next->collective = 9;
    return MUSTER_OK;
}

static muster_status ask_for_a_strangers_values(void* argument, const muster_bucket* bucket, int stage,
                                                muster_next* next) {
    if (stage == 0) return advance(argument, bucket, stage, next);
    next->collective = MUSTER_NEXT_BROADCAST;
    next->output = bucket->gradients;
    next->count = bucket->count;
    next->root = 99;
    return MUSTER_OK;
}

static int far_too_many(void* argument, const muster_bucket* bucket) {
    return bucket->index == 0 ? two(argument, bucket) : 1000;
}

static int none(void* argument, const muster_bucket* bucket) {
    (void)argument;
    (void)bucket;
    return 0;
}

static muster_status leave_it(void* argument, const muster_bucket* bucket, int stage, muster_next* next) {
    (void)argument;
    (void)bucket;
    (void)next;
    EXPECT(stage == 0);
    return MUSTER_OK;
}

// Where a bucket takes no collective its gradients stay this rank's.
static void send_nothing(struct job job) {
    muster_exchange exchange = {
        .size = sizeof exchange, .name = "nothing", .advance = leave_it, .collective_count = none};
    muster_reducer* reducer = NULL;
    void* data = NULL;
    GOOD(make(job, &exchange, MUSTER_WIRE_SAME, &reducer));
    for (int step = 0; step < 2; ++step) {
        GOOD(take_step(job, reducer, step));
        GOOD(muster_reducer_gradient(reducer, 1, &data, NULL));
        for (size_t i = 0; i < COUNT; ++i) EXPECT(((float*)data)[i] == made_up(job.place.rank, step, 1, i));
    }
    GOOD(muster_reducer_release(reducer));
}

// What cannot be is refused on all ranks, before anybody trains.
static void be_refused(struct job job) {
    struct sparse own = make_sparse(job, 1);
    const muster_exchange good = exchange_of(&own);
    muster_reducer* reducer = NULL;
    muster_exchange bad = good;
    bad.name = NULL;
    BAD(make(job, &bad, 0, &reducer), MUSTER_INVALID_ARGUMENT, "an exchange needs a `name` and `advance`");
    bad = good;
    bad.advance = NULL;
    BAD(make(job, &bad, 0, &reducer), MUSTER_INVALID_ARGUMENT, "an exchange needs a `name` and `advance`");
    bad = good;
    bad.restore = NULL;
    BAD(make(job, &bad, 0, &reducer), MUSTER_INVALID_ARGUMENT, "both `keep` and `restore`");
    bad = good;
    bad.size = 0;
    BAD(make(job, &bad, 0, &reducer), MUSTER_INVALID_ARGUMENT, "the structure's size is not set");
    BAD(make(job, &good, MUSTER_WIRE_INT8, &reducer), MUSTER_INVALID_ARGUMENT, "either `exchange` or `wire`");
    EXPECT(reducer == NULL);
}

// The guilty rank may be in its step before the others have left their make().
static muster_status train(struct job job, const muster_exchange* exchange) {
    muster_reducer* reducer = NULL;
    muster_status status = make(job, exchange, MUSTER_WIRE_SAME, &reducer);
    if (status == MUSTER_OK) status = take_step(job, reducer, 0);
    GOOD(muster_reducer_release(reducer));
    return status;
}

// What fails on one rank is told to all. Leaves a dead communicator.
static void fail_on_one(struct job job, const char* how) {
    const int faulty = job.place.rank == job.place.world_size - 1;
    struct sparse own = make_sparse(job, 1);
    muster_exchange exchange = exchange_of(&own);
    if (faulty && strcmp(how, "status") == 0) own.fail_with = MUSTER_NOT_FOUND;
    const char* words = "advance() of exchange largest values returned 8 (not_found)";
    muster_status own_status = MUSTER_INVALID_ARGUMENT;
    if (strcmp(how, "status") == 0) own_status = MUSTER_CANCELLED;
    if (strcmp(how, "unknown") == 0) {
        if (faulty) exchange.advance = ask_for_the_unknown;
        words = "9 is not a collective; MUSTER_NEXT_... are 0 to 6";
    }
    if (strcmp(how, "root") == 0) {
        if (faulty) exchange.advance = ask_for_a_strangers_values;
        words = "the ranks are 0 to ";
    }
    if (strcmp(how, "count") == 0) {
        if (faulty) exchange.collective_count = far_too_many;
        words = "collective_count() of exchange largest values returned 1000; 0 to 64 are valid";
    }
    BAD(train(job, &exchange), faulty ? own_status : MUSTER_CANCELLED, words);
    if (!faulty) {
        char rank[20];
        snprintf(rank, sizeof rank, "rank %d", job.place.world_size - 1);
        EXPECT(strstr(muster_last_error(), rank) != NULL);
    }
    give_back(&own);
}

int main(int argc, char** argv) {
    const struct job job = open_job();
    if (argc > 1) {
        fail_on_one(job, argv[1]);
    } else {
        send_all(job);
        go_on(job);
        send_nothing(job);
        be_refused(job);
    }
    return close_job(job);
}
