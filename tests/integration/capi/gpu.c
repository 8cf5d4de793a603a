// A reducer whose gradients lie on a GPU, through the C API. Works over the stand-ins, whose device memory the host can
// touch here.
#include <dlfcn.h>
#include <stdint.h>

#include "expect.h"

// Of CUDA's runtime, found as the library finds it.
static void* function_of_cuda(const char* name) {
    void* const cuda = dlopen(getenv("MUSTER_CUDA_LIBRARY"), RTLD_NOW);
    EXPECT(cuda != NULL);
    return dlsym(cuda, name);
}

static void* make_event(void) {
    int (*create)(void**, unsigned) = NULL;
    void* const found = function_of_cuda("cudaEventCreateWithFlags");
    memcpy(&create, &found, sizeof create);
    void* event = NULL;
    EXPECT(create(&event, 2) == 0);
    return event;
}

int main(void) {
    const muster_context_options options = {.size = sizeof options, .transport = MUSTER_TRANSPORT_NCCL};
    struct job job;
    memset(&job, 0, sizeof job);
    job.place.size = sizeof job.place;
    GOOD(muster_context_open(&options, &job.context));
    GOOD(muster_context_place(job.context, &job.place));
    GOOD(muster_context_world(job.context, &job.world));
    char name[8];
    GOOD(muster_communicator_transport(job.world, name, sizeof name, NULL));
    EXPECT(strcmp(name, "nccl") == 0);

    float weight[100] = {0};
    const int64_t shape[] = {100};
    const muster_parameter parameter = {"weight", shape, 1, MUSTER_F32, weight};
    muster_reducer* reducer = NULL;
    GOOD(muster_reducer_make(job.world, &parameter, 1, NULL, &reducer));
    void* const event = make_event();
    for (int step = 0; step < 3; ++step) {
        void* gradient = NULL;
        GOOD(muster_reducer_zero_gradients_after(reducer, event));
        GOOD(muster_reducer_begin_step(reducer, (float)(job.place.rank + 1), NULL));
        GOOD(muster_reducer_gradient(reducer, 0, &gradient, NULL));
        EXPECT(((float*)gradient)[99] == 0);
        ((float*)gradient)[99] = (float)job.place.rank;
        GOOD(muster_reducer_mark_ready_after(reducer, 0, event));
        GOOD(muster_reducer_finish(reducer));
        // Of ranks 0 and 1 with 1 and 2 samples.
        const float expected = job.place.world_size == 2 ? 2.0F / 3 : 0;
        EXPECT(((float*)gradient)[99] > expected - 1e-6F && ((float*)gradient)[99] < expected + 1e-6F);
    }
    BAD(muster_reducer_mark_ready_after(reducer, 0, NULL), MUSTER_INVALID_ARGUMENT, "`event` is NULL");
    BAD(muster_reducer_zero_gradients_after(reducer, NULL), MUSTER_INVALID_ARGUMENT, "`event` is NULL");
    GOOD(muster_reducer_release(reducer));
    return close_job(job);
}
