// What the C programs of these tests check with: a failed check names the line, the status and the library's sentence.
#ifndef MUSTER_TESTS_EXPECT_H
#define MUSTER_TESTS_EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "muster/muster.h"

static int expect_count = 0;

#define EXPECT(condition)                                                                           \
    do {                                                                                            \
        ++expect_count;                                                                             \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
                    muster_last_error());                                                           \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

// A call that must succeed.
#define GOOD(call) EXPECT((call) == MUSTER_OK)

// A call that must fail with `status`, and a sentence in which `words` stand.
#define BAD(call, status, words)                                                                                 \
    do {                                                                                                         \
        const muster_status given_status = (call);                                                               \
        ++expect_count;                                                                                          \
        if (given_status != (status) || strstr(muster_last_error(), (words)) == NULL) {                          \
            fprintf(stderr, "%s:%d: %s gave %s, \"%s\"; expected %s with \"%s\"\n", __FILE__, __LINE__, #call,   \
                    muster_status_name(given_status), muster_last_error(), muster_status_name(status), (words)); \
            exit(1);                                                                                             \
        }                                                                                                        \
    } while (0)

// This process's context and communicator of all ranks.
struct job {
    muster_context* context;
    muster_communicator* world;
    muster_place place;
};

static inline struct job open_job(void) {
    struct job job;
    memset(&job, 0, sizeof job);
    job.place.size = sizeof job.place;
    GOOD(muster_context_open(NULL, &job.context));
    GOOD(muster_context_place(job.context, &job.place));
    GOOD(muster_context_world(job.context, &job.world));
    return job;
}

static inline int close_job(struct job job) {
    GOOD(muster_communicator_release(job.world));
    GOOD(muster_context_release(job.context));
    printf("rank %d of %d: %d checks\n", job.place.rank, job.place.world_size, expect_count);
    return 0;
}

#endif
