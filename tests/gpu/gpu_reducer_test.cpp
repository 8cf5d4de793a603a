// The gradient reducer on the memory of a GPU, which the host cannot touch: part of gpu_nccl_test.
#include <cstdio>

#include "rendezvous/base/text/text.h"
#include "tests/gpu/device_training.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace muster {

using test::DeviceTraining;
using test::on_one_gpu;
using test::RankProcesses;

namespace {

ReducerOptions small_buckets() {
    return {.bucket_cap_mb = 4096.0 / (1 << 20), .first_bucket_mb = 0.001, .last_bucket_mb = 0.001};
}

std::string train(int size, const DeviceTraining& how) {
    return on_one_gpu(size, [&](Communicator& world, int) { return test::train_on_device(world, how); });
}

/// False, with the reason as a line of the output that scripts/gpu looks for: the plugin has no code for this GPU, or
/// CUDA's runtime takes none.
bool has_kernels() {
    RankProcesses rank(1, [](const runtime::GroupTerms& group) {
        auto world = test::join_gpu_group(group, 0);
        if (!world) return 2;
        const auto why = test::why_no_kernels(*world);
        if (why.empty()) return 0;
        std::printf("skipped \"%s\": %s\n", Catch::getResultCapture().getCurrentTestName().c_str(), why.c_str());
        std::fflush(stdout);
        return 1;
    });
    const auto end = rank.join().front();
    REQUIRE((end.exited && end.code <= 1));
    return end.code == 0;
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

TEST_CASE("compressed wires on a GPU have the bits of the host's") {
    if (!has_kernels()) return;
    for (const auto wire : {WireFormat::f16, WireFormat::bf16, WireFormat::int8, WireFormat::power}) {
        INFO("wire " << static_cast<int>(wire));
        auto options = small_buckets();
        options.wire = wire;
        options.power_start_step = 1;
        for (const int size : {1, 2}) {
            CHECK(train(size, {.steps = 8, .options = options, .shuffled = true, .unused = 1}) == "");
        }
    }
}

TEST_CASE("a gradient on a GPU that is not finite is told, and training goes on") {
    if (!has_kernels()) return;
    auto options = small_buckets();
    options.finite_check = FiniteCheck::on;
    CHECK(train(2, {.steps = 3, .options = options, .not_finite = 2, .not_finite_step = 1}) == "");
}

TEST_CASE(
    "PowerSGD on a GPU: steps without gradients, and with one that is not finite, leave it as it is on the host") {
    if (!has_kernels()) return;
    auto options = small_buckets();
    options.wire = WireFormat::power;
    options.power_start_step = 0;
    CHECK(train(2, {.steps = 5, .options = options, .zero_step = 2}) == "");
    CHECK(train(2, {.steps = 4, .options = options, .not_finite = 5, .not_finite_step = 1}) == "");
}

TEST_CASE("a sharded optimizer on a GPU has the bits of the host's") {
    if (!has_kernels()) return;
    const OptimizerRule rules[] = {Sgd{}, Sgd{.momentum = 0.9, .weight_decay = 0.1}, Adam{.weight_decay = 0.1},
                                   AdamW{}};
    const auto optimize = [&](Communicator& world, int) -> std::string {
        for (const auto& rule : rules) {
            if (auto wrong = test::optimize_on_device(world, rule); !wrong.empty()) {
                return cat("rule ", rule.index(), ": ", wrong);
            }
        }
        return "";
    };
    for (const int size : {1, 2}) CHECK(on_one_gpu(size, optimize) == "");
}

}  // namespace muster
