#include "agent/evidence/step_sample.h"

#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "worker_runtime/core/step_record.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::runtime;

namespace {

std::optional<StepSample> sample_of(const StepRecord& record, std::size_t bytes = sizeof(StepRecord)) {
    const FileDescriptor file(::memfd_create("record", MFD_CLOEXEC));
    REQUIRE(::write(file.get(), &record, sizeof record) == sizeof record);
    REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
    return sample_step_record(file.get());
}

}  // namespace

TEST_CASE("steps are counted with their times, also those that a program reports at once") {
    StepRecord record;
    Instant now(100s);
    note_step(record, 41, now);
    for (const auto& [step, took] : {std::pair{42, 5ms}, std::pair{43, 10ms}, std::pair{53, 40'000ms}})
        note_step(record, step, now += took);
    const auto sample = sample_of(record).value();
    CHECK(sample.last_step == 53);
    CHECK(sample.tally.first_step == 41);
    CHECK(sample.tally.step_count == 13);
    CHECK(sample.tally.step_ns == 40'015'000'000);
    REQUIRE(sample.times.size() == step_time_bucket_count);
    CHECK(sample.times[2].count == 2);   // A bound belongs to its bucket.
    CHECK(sample.times[8].count == 10);  // 4 s each
    note_step(record, 43, now += 60s);   // The program went back.
    note_step(record, 5'000'000, now);   // No program takes a million steps between two reports.
    CHECK(record.step_times.back() == 1);
    CHECK(record.step_count == 15);
    CHECK(record.last_step == 5'000'000);
}

TEST_CASE("what reducers measure is added up") {
    StepRecord record;
    for (int i = 0; i < 2; ++i)
        add_cost(record,
                 {.total = 10ms, .data_wait = 1ms, .exposed = 2ms, .compute = 7ms, .communication = 5ms, .samples = 64},
                 3ms);
    const auto sample = sample_of(record).value();
    CHECK(sample.last_step == -1);
    CHECK(sample.tally.first_step == -1);
    CHECK(sample.tally == native::StepTally{.measured_ns = 20'000'000,
                                            .data_wait_ns = 2'000'000,
                                            .exposed_ns = 4'000'000,
                                            .late_ns = 6'000'000,
                                            .sample_count = 128});
}

TEST_CASE("a worker's memory is not trusted") {
    StepRecord record;
    CHECK_FALSE(sample_of(record, sizeof record - 1));
    CHECK_FALSE(sample_of(record, 0));
    record.last_step = 7;  // as if read between the two numbers of the first step
    CHECK(sample_of(record).value().last_step == -1);
    record.first_step = -5;
    record.step_count = -1;
    record.step_times[3] = INT64_MIN;
    record.measured_ns = INT64_MAX;
    const auto sample = sample_of(record).value();
    CHECK(sample.last_step == 7);
    CHECK(sample.tally == native::StepTally{});
    CHECK(sample.times[3].count == 0);
    record.first_step = 5;
    record.last_step = record.checkpoint_step = INT64_MAX;
    CHECK(sample_of(record).value().last_step == -1);
    CHECK(sample_of(record).value().tally == native::StepTally{});
    record.magic[7] = '9';
    CHECK_FALSE(sample_of(record));
}
