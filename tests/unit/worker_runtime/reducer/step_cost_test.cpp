#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/arithmetic/near.h"
#include "worker_runtime/core/step_control.h"
#include "worker_runtime/core/step_meter.h"

using namespace muster;
using namespace muster::runtime;
using muster::test::near;

namespace {

/// A meter fed with steps of 100 ms: 10 ms of waiting for data, `exposed` for communication.
struct Run {
    explicit Run(int world) : meter(world) { meter.start(now); }
    void step(Duration exposed, StepKind kind = StepKind::ordinary, Duration total = 100ms) {
        meter.add_data_wait(10ms);
        meter.add_exposed(exposed);
        meter.add_communication(30ms);
        meter.add_bytes(1000);
        now += total;
        meter.end_step(now, 64, kind);
    }
    Instant now{};
    StepMeter meter;
};

CostSummary costly() {
    Run run(4);
    for (int i = 0; i < 6; ++i) run.step(25ms);
    auto summary = run.meter.summary();
    summary.bucket_count = 4;
    summary.bucket_bytes = std::size_t{100} << 20;
    summary.mean.bytes = summary.bucket_bytes;
    return summary;
}

bool advises(const CostSummary& summary, std::string_view what) {
    const auto text = scaling_report(summary).text;
    INFO(text);
    return text.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a step is compute, data wait and exposed communication, and what communication exceeds that was hidden") {
    Run run(2);
    run.step(20ms);
    const auto& cost = run.meter.last();
    CHECK(cost.total == 100ms);
    CHECK(cost.compute == 70ms);
    CHECK(cost.exposed == 20ms);
    CHECK(cost.overlap() == 10ms);
    run.step(40ms);
    CHECK(run.meter.last().overlap() == 0ms);
    // Waits in several threads at once may come to more than the step took.
    run.step(95ms);
    CHECK(run.meter.last().compute == 0ms);
}

TEST_CASE("the first two steps and unusual ones are left out, and the first stands apart") {
    Run run(2);
    run.step(20ms, StepKind::ordinary, 900ms);
    run.step(20ms, StepKind::ordinary, 500ms);
    run.step(20ms);
    run.step(20ms, StepKind::unusual, 700ms);
    run.step(40ms, StepKind::ordinary, 300ms);
    const auto summary = run.meter.summary();
    CHECK(summary.step_count == 2);
    CHECK(summary.left_out_count == 3);
    CHECK(summary.first.total == 900ms);
    CHECK(summary.mean.total == 200ms);
    CHECK(summary.mean.exposed == 30ms);
    CHECK(summary.mean.data_wait == 10ms);
    CHECK(summary.mean.compute == 160ms);
    CHECK(summary.mean.communication == 30ms);
    CHECK(summary.mean.bytes == 1000);
    CHECK(near(summary.samples_per_second(), 320));
    CHECK(near(summary.exposed_share(), 0.15));
}

TEST_CASE("a rank is late by what the most patient rank waited longer") {
    StepMeter meter(3);
    meter.add_waits(std::vector<Duration>{9ms, 1ms, 7ms});
    meter.add_waits(std::vector<Duration>{5ms, 1ms, 5ms});
    CHECK(meter.summary().lateness == std::vector<Duration>{0ms, 6ms, 1ms});
}

TEST_CASE("efficiency is named after what the baseline kept equal") {
    auto summary = costly();  // 640 samples/s on 4 workers, 64 a step
    const auto strong =
        scaling_report(summary, Baseline{.world = 1, .samples_per_second = 200, .samples_per_step = 64});
    CHECK(near(strong.strong.value(), 0.8));
    CHECK_FALSE(strong.weak.has_value());
    const auto weak = scaling_report(summary, Baseline{.world = 1, .samples_per_second = 200, .samples_per_step = 16});
    CHECK(near(weak.weak.value(), 0.8));
    CHECK_FALSE(weak.strong.has_value());
    const auto neither =
        scaling_report(summary, Baseline{.world = 1, .samples_per_second = 200, .samples_per_step = 50});
    CHECK_FALSE(neither.strong.has_value());
    CHECK_FALSE(neither.weak.has_value());
    CHECK(near(scaling_report(summary).estimated, 0.75));
    CHECK(scaling_report(summary, Baseline{}).text.find("no samples per second") != std::string::npos);
    CHECK(scaling_report(CostSummary{}).text == "No step is counted yet: the first 0 were warm-up.\n");
}

TEST_CASE("advice comes only with more than 10 % of exposed communication, and fits the run") {
    auto summary = costly();
    CHECK(advises(summary, "wire bf16"));
    CHECK(advises(summary, "over 3 backward passes"));  // 25 ms of 75 + 25: 25 / (3 x 75 + 25) = 10 %
    CHECK_FALSE(advises(summary, "bucket_cap_mb"));
    CHECK_FALSE(advises(summary, "is late by"));

    summary.bucket_count = 1;
    CHECK(advises(summary, "set bucket_cap_mb to 25 or to auto"));
    summary.bucket_count = 100;
    CHECK(advises(summary, "raise bucket_cap_mb"));
    summary.mean.bytes /= 2;
    CHECK_FALSE(advises(summary, "wire bf16"));
    summary.lateness = {0ms, 1ms, 20ms, 0ms};
    CHECK(advises(summary, "rank 2 is late by 20 ms on average"));

    summary.lateness = {0ms, 1ms, 12ms, 0ms};
    CHECK_FALSE(advises(summary, "is late by"));
    // Against the middle one: that one rank is early makes nobody late.
    summary.lateness = {0ms, 20ms, 20ms, 20ms};
    CHECK_FALSE(advises(summary, "is late by"));

    // Steps of a few milliseconds have parts that can be told apart.
    summary.mean = {.total = 2'346us, .exposed = 1'100us, .compute = 1'246us, .communication = 1'100us};
    summary.lateness = {0ms, 12us, 0ms, 900us};
    CHECK(scaling_report(summary).text.find(
              "2.35 ms each = 1.25 ms compute + 0 ms waiting for data + 1.1 ms exposed") != std::string::npos);
    CHECK(advises(summary, "rank 3 is late by 0.9 ms on average"));

    Run cheap(2);
    for (int i = 0; i < 5; ++i) cheap.step(10ms);
    CHECK(scaling_report(cheap.meter.summary()).advice.empty());
}

TEST_CASE("the maximum of the ranks' control blocks is what they all said") {
    const auto size = StepControl::size_bytes(3, 2);
    std::vector<std::uint8_t> left(size);
    std::vector<std::uint8_t> right(size, 77);
    StepControl mine(left, 3, 2);
    StepControl other(right, 3, 2);
    other.clear();
    mine.set_used(0);
    mine.set_waited(0, 1234us);
    mine.set_samples(0, 32);
    mine.ask_for_new_buckets();
    other.set_used(2);
    other.set_waited(1, 3h);
    other.set_samples(1, 7.5f);
    for (std::size_t i = 0; i < size; ++i) left[i] = std::max(left[i], right[i]);
    CHECK(mine.new_buckets_asked());
    CHECK(mine.used(0));
    CHECK_FALSE(mine.used(1));
    CHECK(mine.used(2));
    CHECK(mine.waited(0) == 1234us);
    CHECK(mine.waited(1) == std::chrono::microseconds(0xffffffff));  // as much as fits
    CHECK(mine.samples(0) == 32);
    CHECK(mine.samples(1) == 7.5f);
    CHECK_FALSE(mine.first_not_finite().has_value());
    other.clear();
    other.set_not_finite(1, 300);
    mine.set_not_finite(1, 5);
    for (std::size_t i = 0; i < size; ++i) left[i] = std::max(left[i], right[i]);
    REQUIRE(mine.first_not_finite().has_value());
    CHECK(mine.first_not_finite()->parameter == 1);
    CHECK(mine.first_not_finite()->rank == 253);
    CHECK(mine.used(1));
}
