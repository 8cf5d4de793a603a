#include "worker_runtime/core/flight_record.h"

#include <unistd.h>

#include <cstring>
#include <new>

#include "tests/support/catch.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/flight/flight_recorder.h"

namespace muster::runtime {

namespace {

FlightEntry entry(std::uint64_t number, FlightState state, std::int64_t at_ms,
                  OperationKind kind = OperationKind::all_reduce, std::uint64_t count = 100) {
    FlightEntry made{.number = number, .count = count, .started_ns = at_ms * 1'000'000, .kind = kind, .state = state};
    made.type = DataType::f32;
    if (state != FlightState::started) made.ended_ns = made.started_ns + 1'000'000;
    return made;
}

FlightRing ring(int rank, int world, std::vector<FlightEntry> entries, std::int64_t round = 2) {
    FlightRing made;
    made.header.rank = rank;
    made.header.world = world;
    made.header.pid = 100 + rank;
    made.header.round = round;
    made.header.group_count = 1;
    made.header.group_ranks[0] = rank;
    made.header.group_sizes[0] = world;
    std::strcpy(made.header.host, "gpu07");
    std::strcpy(made.header.groups[0], "world");
    made.entries = std::move(entries);
    return made;
}

std::string bytes_of(const FlightRing& from, std::uint64_t next) {
    FlightHeader header = from.header;
    header.entry_count = 4;
    header.next = next;
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    for (const auto& one : from.entries) bytes.append(reinterpret_cast<const char*>(&one), sizeof one);
    return bytes;
}

}  // namespace

TEST_CASE("the report names the rank that is missing, its last operation, and who waits") {
    const std::vector<FlightRing> rings{
        ring(0, 3, {entry(17, FlightState::done, 1000), entry(18, FlightState::started, 1010)}),
        ring(1, 3, {entry(17, FlightState::done, 1000), entry(18, FlightState::started, 13'401)}),
        ring(2, 3, {entry(17, FlightState::done, 1000)}),
    };
    CHECK(
        flight_report(rings) ==
        "round 2: records of 3 ranks\n"
        "communicator world (3 ranks)\n"
        "  rank 2 (pid 102 on gpu07) is missing from operation 18 (all_reduce sum f32 x 100): its last, 17 (all_reduce "
        "sum f32 x 100), ended 12.4 s before the newest entry of its host\n"
        "  rank 0, 1 wait in operation 18 (all_reduce sum f32 x 100), the first since 00:00:01 UTC\n");
}

TEST_CASE("the report names both sides of a difference, ranks without a record, and failures in words") {
    auto failed = ring(1, 3, {entry(5, FlightState::failed, 10, OperationKind::broadcast)});
    std::strcpy(failed.header.failure, "rank 2 (pid 102 on gpu07) died");
    const auto report = flight_report({ring(0, 3, {entry(5, FlightState::started, 9)}), failed});
    CHECK(report.find(
              "they differ in operation 5: rank 0 (pid 100 on gpu07) ran all_reduce sum f32 x 100, rank 1 (pid 101 "
              "on gpu07) ran broadcast f32 x 100") != std::string::npos);
    CHECK(report.find("rank 2 has no record") != std::string::npos);
    CHECK(report.find("rank 1: rank 2 (pid 102 on gpu07) died") != std::string::npos);
}

TEST_CASE("the report says when the first began to wait, and how long those waited for whom the operation failed") {
    auto early = ring(0, 4, {entry(18, FlightState::started, 7'000)});
    early.header.wall_minus_monotonic_ns = (18 * 3600 + 31 * 60) * 1'000'000'000ll;
    auto late = ring(1, 4, {entry(18, FlightState::started, 9'000)});
    late.header.wall_minus_monotonic_ns = early.header.wall_minus_monotonic_ns;
    auto failed = ring(2, 4, {entry(18, FlightState::failed, 8'000)});
    failed.entries[0].ended_ns = 8'500'000'000;
    const auto behind = ring(3, 4, {entry(17, FlightState::failed, 8'000)});
    const auto report = flight_report({late, early, failed, behind});
    CHECK(report.find("  rank 0, 1 wait in operation 18 (all_reduce sum f32 x 100), the first since 18:31:07 UTC\n") !=
          std::string::npos);
    CHECK(report.find("  rank 2: operation 18 (all_reduce sum f32 x 100) failed after 500 ms\n") != std::string::npos);
    CHECK(report.find("rank 3 (pid 103 on gpu07) is missing from operation 18 (all_reduce sum f32 x 100): its last, 17 "
                      "(all_reduce sum f32 x 100), failed 999 ms before the newest") != std::string::npos);
}

namespace {

/// Has memory for a page, and runs nothing.
class SmallTransport final : public Transport {
  public:
    static constexpr std::size_t deadly_bytes = 6000;  ///< whoever asks for so much finds that another rank has died

    [[nodiscard]] std::string_view name() const override { return "small"; }
    Result<void> run(const Operation& operation, const RunTerms&) override {
        if (operation.count > 4096) throw std::bad_alloc();
        return {};
    }
    Result<void> transfer(const Operation&, const RunTerms&) override { return {}; }
    Result<Memory> allocate(std::size_t size_bytes, const RunTerms&) override {
        if (size_bytes == deadly_bytes) return Error{Errc::peer_closed, "rank 1 died"};
        if (size_bytes > 4096) return Error{Errc::limit_exceeded, "too little memory"};
        return Memory();
    }
    void abort(std::string_view) override {}
};

FlightRing read_back(FlightRecorder& recorder) {
    std::string bytes(flight_ring_bytes, '\0');
    REQUIRE(::pread(recorder.descriptor().get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return read_flight_ring(bytes).value();
}

}  // namespace

TEST_CASE("taking memory is in the record, and whoever stays away from it is missing") {
    const auto recorder = FlightRecorder::open({}, "").value();
    CommunicatorBody body(
        {.group = {.rank = 0, .size = 1, .id = "world", .place = nullptr}, .make_transport = {}, .flight = recorder},
        std::make_unique<SmallTransport>());
    CHECK(body.run(barrier(), std::chrono::seconds(60)).has_value());
    CHECK(body.allocate(4096).has_value());
    CHECK_FALSE(body.allocate(5000).has_value());
    const auto read = read_back(*recorder);
    REQUIRE(read.entries.size() == 3);
    const auto& taken = read.entries[1];
    const auto& refused = read.entries[2];
    CHECK((taken.number == 2 && takes_memory(taken) && taken.count == 4096 && taken.state == FlightState::done));
    CHECK((refused.number == 3 && takes_memory(refused) && refused.state == FlightState::failed));

    const auto report = flight_report(
        {ring(0, 2, {entry(8, FlightState::done, 5), entry(9, FlightState::started, 7, OperationKind::barrier, 4096)}),
         ring(1, 2, {entry(8, FlightState::done, 5)})});
    CHECK(report.find("rank 1 (pid 101 on gpu07) is missing from operation 9 (allocate 4096 bytes)") !=
          std::string::npos);
}

TEST_CASE("each communicator of a process has its name and its own numbers in the record, and signatures are whole") {
    const auto recorder = FlightRecorder::open({}, "").value();
    const auto body_of = [&](const std::string& id, int rank, int size) {
        return CommunicatorBody({.group = {.rank = rank, .size = size, .id = id, .place = nullptr},
                                 .make_transport = {},
                                 .flight = recorder},
                                std::make_unique<SmallTransport>());
    };
    CommunicatorBody world = body_of("world", 3, 4);
    CommunicatorBody part = body_of("world/0.1", 1, 2);
    std::vector<float> values(6);
    auto reduced = all_reduce(buffer(std::span(values)), ReduceOp::max);
    reduced.tag = 0xabc0001;
    const auto all = broadcast(buffer(std::span(values)), 2);
    CHECK(world.run(barrier(), std::chrono::seconds(60)).has_value());
    CHECK(part.run(reduced, std::chrono::seconds(60)).has_value());
    CHECK(world.run(all, std::chrono::seconds(60)).has_value());
    const auto read = read_back(*recorder);
    REQUIRE(read.header.group_count == 2);
    CHECK(read.header.groups[0] == std::string("world"));
    CHECK(read.header.groups[1] == std::string("world/0.1"));
    CHECK((read.header.group_ranks[1] == 1 && read.header.group_sizes[1] == 2 && read.header.group_ranks[0] == 3));
    REQUIRE(read.entries.size() == 3);
    const auto& second = read.entries[1];
    CHECK((second.group == 1 && second.number == 1 && second.kind == OperationKind::all_reduce));
    CHECK((second.type == DataType::f32 && second.reduce == ReduceOp::max && second.count == 6));
    CHECK((second.tag == 0xabc0001 && second.state == FlightState::done));
    const auto& third = read.entries[2];
    CHECK((third.group == 0 && third.number == 2 && third.kind == OperationKind::broadcast && third.peer == 2));
}

TEST_CASE("only too little memory leaves a communicator as it was; else the first failure is kept, and in the record") {
    const auto recorder = FlightRecorder::open({}, "").value();
    const auto groups = std::make_shared<RoundGroups>();
    CommunicatorBody body({.group = {.rank = 0, .size = 1, .id = "world", .place = nullptr},
                           .make_transport = {},
                           .flight = recorder,
                           .groups = groups},
                          std::make_unique<SmallTransport>());
    CHECK(body.allocate(5000).error().code == Errc::limit_exceeded);
    CHECK(body.run(barrier(), std::chrono::seconds(60)).has_value());
    CHECK_FALSE(groups->has_failed());
    CHECK(body.allocate(SmallTransport::deadly_bytes).error().context == "rank 1 died");
    CHECK(groups->has_failed());  // so that a survivor waits for the agent to end the round
    CHECK(body.status().error().context == "rank 1 died");
    body.abort("it is too late");
    CHECK(body.run(barrier(), std::chrono::seconds(60)).error().context == "rank 1 died");
    CHECK(read_back(*recorder).header.failure == std::string("rank 1 died"));
}

TEST_CASE("an operation for which a transport finds no memory ends its communicator, and later ones end at once") {
    CommunicatorBody body({.group = {.rank = 0, .size = 1, .id = "world", .place = nullptr}, .make_transport = {}},
                          std::make_unique<SmallTransport>());
    std::vector<float> values(5000);
    const auto large = all_reduce(buffer(std::span(values)), ReduceOp::sum);
    const auto done = body.run(large, std::chrono::seconds(60));
    CHECK(done.error().code == Errc::limit_exceeded);
    CHECK(done.error().context.find("rank 0 has too little memory for all_reduce sum f32 x 5000") != std::string::npos);
    CHECK(body.start(barrier(), std::chrono::seconds(60)).wait().error().context == done.error().context);
}

TEST_CASE("the end of an operation whose entry another one has by now is not taken for the other's") {
    const auto recorder = FlightRecorder::open({}, "").value();
    const auto group = recorder->add_group("world", 0, 2);
    const auto waits = recorder->begin(group, 1, {.kind = OperationKind::receive, .peer = 1});
    for (std::uint64_t number = 1; number < flight_entry_count; ++number)
        recorder->end(recorder->begin(group, number, {}), true);
    (void)recorder->begin(group, flight_entry_count, {});
    recorder->end(waits, false);
    const auto read = read_back(*recorder);
    REQUIRE(read.entries.size() == flight_entry_count);
    CHECK((read.entries.back().number == flight_entry_count && read.entries.back().state == FlightState::started));
}

TEST_CASE("communicators for which a record has no name are not compared with each other") {
    const auto record_of = [](int rank, OperationKind kind) {
        const auto recorder = FlightRecorder::open({.rank = rank, .world = 2, .job = "j"}, "").value();
        for (std::size_t i = 0; i < flight_group_count_max; ++i) recorder->add_group("part", rank, 2);
        const auto beyond = recorder->add_group("beyond", rank, 2);
        recorder->end(recorder->begin(beyond, 1, {.kind = kind}), true);
        return read_back(*recorder);
    };
    const std::vector<FlightRing> rings{record_of(0, OperationKind::all_gather), record_of(1, OperationKind::barrier)};
    const auto report = flight_report(rings);
    CHECK(report.find("they differ") == std::string::npos);
    CHECK(report.find("communicator part #32 (2 ranks)\n  not compared: a rank has made more than 32 communicators") !=
          std::string::npos);
}

TEST_CASE("a communicator that is made again under the same name is compared with its like, and not with the first") {
    const auto made_twice = [](int rank, FlightState last) {
        auto made = ring(rank, 2, {entry(8, FlightState::done, 5), entry(9, FlightState::done, 6)});
        made.header.group_count = 2;
        std::strcpy(made.header.groups[1], "world");
        made.header.group_ranks[1] = rank;
        made.header.group_sizes[1] = 2;
        made.entries.push_back(entry(7, FlightState::done, 7, OperationKind::all_gather));
        if (last == FlightState::started) made.entries.push_back(entry(8, last, 8, OperationKind::all_gather));
        for (std::size_t i = 2; i < made.entries.size(); ++i) made.entries[i].group = 1;
        return made;
    };
    const auto report = flight_report({made_twice(0, FlightState::started), made_twice(1, FlightState::done)});
    CHECK(report ==
          "round 2: records of 2 ranks\n"
          "communicator world (2 ranks)\n"
          "  all 2 ranks have ended operation 9 (all_reduce sum f32 x 100)\n"
          "communicator world #2 (2 ranks)\n"
          "  rank 1 (pid 101 on gpu07) is missing from operation 8 (all_gather f32 x 100): its last, 7 "
          "(all_gather f32 x 100), ended 0 ms before the newest entry of its host\n"
          "  rank 0 waits in operation 8 (all_gather f32 x 100), since 00:00:00 UTC\n");
}

TEST_CASE("ranks that differ in the tag alone, as after different plans of buckets, or in the count, are told apart") {
    const auto tagged = [](int rank, std::uint32_t tag) {
        auto made = entry(5, FlightState::started, 9);
        made.tag = tag;
        return ring(rank, 2, {made});
    };
    CHECK(flight_report({tagged(0, 7), tagged(1, 7)}).find("they differ") == std::string::npos);
    CHECK(
        flight_report({tagged(0, 7), tagged(1, 8)})
            .find("they differ in operation 5: rank 0 (pid 100 on gpu07) ran all_reduce sum f32 x 100 tagged 7, rank 1 "
                  "(pid 101 on gpu07) ran all_reduce sum f32 x 100 tagged 8") != std::string::npos);
    const auto other_count = ring(1, 2, {entry(5, FlightState::started, 9, OperationKind::all_reduce, 101)});
    CHECK(flight_report({tagged(0, 0), other_count}).find("ran all_reduce sum f32 x 101\n") != std::string::npos);
}

TEST_CASE("records of an older round are left out, and all is said to be well when it is") {
    const auto report =
        flight_report({ring(0, 2, {entry(3, FlightState::done, 5)}, 4), ring(1, 2, {entry(3, FlightState::done, 5)}, 4),
                       ring(1, 2, {entry(9, FlightState::started, 5)}, 3)});
    CHECK(report ==
          "round 4: records of 2 ranks\ncommunicator world (2 ranks)\n  all 2 ranks have ended operation 3 "
          "(all_reduce sum f32 x 100)\n");
}

TEST_CASE("a ring that has gone round is read oldest first, and damage is an error or left out") {
    const auto full = ring(0, 1,
                           {entry(5, FlightState::done, 5), entry(6, FlightState::started, 6),
                            entry(3, FlightState::done, 3), entry(4, FlightState::done, 4)});
    const auto read = read_flight_ring(bytes_of(full, 6));
    REQUIRE(read.has_value());
    REQUIRE(read->entries.size() == 4);
    CHECK(read->entries.front().number == 3);
    CHECK(read->entries.back().number == 6);

    CHECK_FALSE(read_flight_ring("short").has_value());
    std::string bytes = bytes_of(full, 6);
    CHECK_FALSE(read_flight_ring(bytes.substr(0, bytes.size() - 1)).has_value());
    bytes[sizeof(FlightHeader) + offsetof(FlightEntry, kind)] = 99;
    CHECK(read_flight_ring(bytes)->entries.size() == 3);
    bytes[0] = 'X';
    CHECK_FALSE(read_flight_ring(bytes).has_value());
}

TEST_CASE("the newest operations, types and reductions are read, and the next numbers and that of bool are not") {
    auto to_root = entry(1, FlightState::done, 1, OperationKind::gather);
    to_root.peer = 1;
    auto product = entry(2, FlightState::done, 2, OperationKind::reduce);
    product.reduce = ReduceOp::product;
    product.type = DataType::u16;
    auto last = entry(3, FlightState::done, 3, last_operation_kind);
    last.reduce = static_cast<ReduceOp>(reduce_op_count - 1);
    last.type = static_cast<DataType>(data_type_count - 1);
    const auto whole = read_flight_ring(bytes_of(ring(0, 2, {to_root, product, last, last}), 3)).value();
    REQUIRE(whole.entries.size() == 3);
    CHECK((whole.entries[0].kind == OperationKind::gather && whole.entries[0].peer == 1));
    CHECK((whole.entries[1].reduce == ReduceOp::product && whole.entries[1].type == DataType::u16));

    auto kind = last;
    kind.kind = static_cast<OperationKind>(static_cast<int>(last_operation_kind) + 1);
    auto reduction = last;
    reduction.reduce = static_cast<ReduceOp>(reduce_op_count);
    auto type = last;
    type.type = static_cast<DataType>(7);
    auto next_type = last;
    next_type.type = static_cast<DataType>(data_type_count);
    CHECK(read_flight_ring(bytes_of(ring(0, 2, {kind, reduction, type, next_type}), 4)).value().entries.empty());
}

}  // namespace muster::runtime
