#include "agent/evidence/flight_sample.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "rendezvous/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "worker_runtime/core/flight_record.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::runtime;

namespace {

/// A record as a worker writes it; each operation takes 1 ms.
struct Record {
    Record() {
        header.rank = 3;
        header.group_count = 1;
        std::string("world").copy(header.groups[0], flight_name_bytes);
    }
    void add(Duration pause, FlightState state = FlightState::done) {
        FlightEntry entry;
        entry.number = ++header.next;
        entry.kind = OperationKind::all_reduce;
        entry.state = state;
        clock += pause;
        entry.started_ns = clock.count();
        clock += 1ms;
        if (state != FlightState::started) entry.ended_ns = clock.count();
        entries[(header.next - 1) % flight_entry_count] = entry;
    }
    [[nodiscard]] std::optional<OperationSample> sample(std::size_t bytes = flight_ring_bytes) const {
        const FileDescriptor file(::memfd_create("record", MFD_CLOEXEC));
        REQUIRE(::write(file.get(), &header, sizeof header) == sizeof header);
        const auto size = entries.size() * sizeof(FlightEntry);
        REQUIRE(::write(file.get(), entries.data(), size) == static_cast<ssize_t>(size));
        REQUIRE(::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0);
        return sample_flight_record(file.get());
    }

    FlightHeader header;
    std::vector<FlightEntry> entries = std::vector<FlightEntry>(flight_entry_count);
    Duration clock = 1s;
};

}  // namespace

TEST_CASE("a look at a flight record says what a rank is in, or was in last, and its longest pause") {
    Record record;
    CHECK_FALSE(record.sample().has_value());
    record.add(0ms);
    record.add(70ms);
    record.add(5ms);
    auto sample = record.sample();
    REQUIRE(sample.has_value());
    CHECK(sample->count == 3);
    CHECK_FALSE(sample->inside);
    CHECK(sample->name == "all_reduce 3 of world");
    CHECK(sample->longest_gap == 70ms);
    CHECK(sample->inside_share == 3.0 / 78.0);  // three of 1 ms, two pauses
    record.add(5ms, FlightState::started);
    sample = record.sample();
    CHECK(sample->inside);
    CHECK(sample->name == "all_reduce 4 of world");
}

TEST_CASE("the record is a ring, of which the newest entries count") {
    Record record;
    for (std::uint32_t i = 0; i < flight_entry_count + 10; ++i) record.add(i == 0 ? 9s : 1ms);
    record.add(30ms, FlightState::failed);
    const auto sample = record.sample();
    REQUIRE(sample.has_value());
    CHECK(sample->count == flight_entry_count + 11);
    CHECK(sample->name == "all_reduce 4107 of world");
    CHECK(sample->longest_gap == 30ms);
}

TEST_CASE("what is no record is nothing, and a wild one harms nobody") {
    Record record;
    record.add(1ms);
    CHECK_FALSE(record.sample(100).has_value());
    CHECK_FALSE(record.sample(sizeof(FlightHeader)).has_value());
    record.entries[0].group = 999;
    CHECK(record.sample()->name == "an operation");
    record.entries[0].group = 0;
    record.entries[0].kind = static_cast<OperationKind>(99);
    CHECK(record.sample()->name == "an operation");
    record.header.next = ~0ULL;
    CHECK(record.sample().has_value());
    const auto failure_of = [&record] {
        const FileDescriptor file(::memfd_create("record", MFD_CLOEXEC));
        REQUIRE(::write(file.get(), &record.header, sizeof record.header) == sizeof record.header);
        return flight_failure(file.get());
    };
    CHECK(failure_of().empty());
    std::fill(std::begin(record.header.failure), std::end(record.header.failure), 'f');  // without its zero
    CHECK(failure_of() == std::string(sizeof record.header.failure, 'f'));
    record.header.magic[0] = 'X';
    CHECK(failure_of().empty());
    CHECK(flight_failure(-1).empty());
    CHECK_FALSE(record.sample().has_value());
    CHECK_FALSE(sample_flight_record(-1).has_value());
}
