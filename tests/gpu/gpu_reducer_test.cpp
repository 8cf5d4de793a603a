// The gradient reducer on the memory of a GPU, which the host cannot touch: part of gpu_nccl_test.
#include "tests/gpu/device_training.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/catch.h"

namespace muster {

using test::DeviceTraining;
using test::on_one_gpu;

namespace {

ReducerOptions small_buckets() {
    return {.bucket_cap_mb = 4096.0 / (1 << 20), .first_bucket_mb = 0.001, .last_bucket_mb = 0.001};
}

std::string train(int size, const DeviceTraining& how) {
    return on_one_gpu(size, [&](Communicator& world, int) { return test::train_on_device(world, how); });
}

}  // namespace

TEST_CASE("gradients on a GPU are averaged behind their events, and buckets are made anew there") {
    for (const int size : {1, 2}) {
        CHECK(train(size, {.options = small_buckets()}) == "");
        CHECK(train(size, {.steps = 8, .options = small_buckets(), .shuffled = true, .unused = 1}) == "");
    }
}

TEST_CASE("local steps and uneven inputs on a GPU") {
    CHECK(train(2, {.options = small_buckets(), .local_steps = true}) == "");
    auto uneven = small_buckets();
    uneven.inputs = Inputs::uneven;
    CHECK(train(2, {.options = uneven, .ends = {1, 3}}) == "");
}

TEST_CASE("gradients on a GPU are clipped") {
    for (const int size : {1, 2}) {
        CHECK(on_one_gpu(size, [](Communicator& world, int) { return test::clip_on_device(world); }) == "");
    }
}

}  // namespace muster
