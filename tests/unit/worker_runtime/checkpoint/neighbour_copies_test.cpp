// A whole node goes, and the next one has what its ranks had: copies over loopback among ranks that are threads.
#include <atomic>
#include <barrier>
#include <optional>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/kept_snapshots.h"
#include "worker_runtime/checkpoint/format/rank_file.h"
#include "worker_runtime/checkpoint/neighbour_copies.h"
#include "worker_runtime/shared_memory/shared_segment.h"

using namespace muster;
using namespace muster::test;
using runtime::NeighbourCopies;

namespace {

const std::vector<int> two_nodes = {0, 0, 1, 1};

/// With copy_bytes_per_second_min the second part of a copy is sent sixteen seconds after the first.
constexpr Duration before_a_slow_copy = 14s;

/// Until the next node has `step`; its condition shows in no other way.
std::string copied(Checkpointer& checkpointer, std::int64_t step) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (checkpointer.copied_step() < step) {
        if (std::chrono::steady_clock::now() > deadline) return cat("step ", step, " does not reach the next node");
        std::this_thread::sleep_for(1ms);
    }
    return {};
}

/// Saves step 10 and takes snapshots of 11 to `last`. Each begins when all ranks' copies of the one before have come
/// and their threads are idle; else it would be skipped.
std::string train(Checkpointer& checkpointer, SavedModel& model, std::int64_t last, std::barrier<>& all) {
    model.train_to(10);
    auto done = checkpointer.save(10, model.state());
    if (done) done = checkpointer.finish();
    std::string late = copied(checkpointer, 10);
    for (std::int64_t step = 11; done && late.empty() && step <= last; ++step) {
        all.arrive_and_wait();
        model.train_to(step);
        done = checkpointer.snapshot(step, model.state());
        if (done) late = copied(checkpointer, step);
        if (done) done = checkpointer.finish();
    }
    all.arrive_and_drop();
    return done ? late : done.error().context;
}

std::string train_to_15(const std::string& directory, Agents& agents, const std::vector<int>& nodes) {
    std::barrier all(static_cast<std::ptrdiff_t>(nodes.size()));
    return round_with_agents(
        directory, static_cast<int>(nodes.size()), 0, agents,
        [&all](Checkpointer& checkpointer, SavedModel& model) { return train(checkpointer, model, 15, all); }, nodes);
}

}  // namespace

TEST_CASE("a whole node is lost, and its replacement goes on from the memory of the next one") {
    for (const int lost : {0, 1}) {
        const ScratchFolder scratch;
        Agents agents;
        REQUIRE(train_to_15(scratch / "c", agents, two_nodes) == "");
        CHECK(agents.copies(0) == "2@14 2@15");
        CHECK(agents.copies(3) == "1@14 1@15");
        agents.lose(2 * lost);
        agents.lose(2 * lost + 1);
        CHECK(loaded(scratch / "c", 4, agents) == "memory 15");
        // The copy before it stayed whole while this one came.
        const int holder = lost == 0 ? 3 : 0;
        flip_byte(agents.newest(holder, (holder + 2) % 4), 20);
        CHECK(loaded(scratch / "c", 4, agents) == "memory 14");
    }
}

TEST_CASE("a world that shrinks to one node goes on from memory") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", agents, two_nodes) == "");
    agents.move(2, 0);
    agents.move(3, 1);
    CHECK(loaded(scratch / "c", 2, agents, false) == "memory 15");
}

TEST_CASE("nodes of different sizes keep each other's copies, and two neighbours that go together cost the disk") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", agents, {4, 4, 4, 8, 9}) == "");
    CHECK(agents.copies(3) == "0@14 0@15 1@14 1@15 2@14 2@15");
    CHECK(agents.copies(4) == "3@14 3@15");
    CHECK(agents.copies(0) == "4@14 4@15");
    agents.lose(3);
    CHECK(loaded(scratch / "c", 5, agents) == "memory 15");
    agents.lose(4);
    CHECK(loaded(scratch / "c", 5, agents) == "disk 10");
}

TEST_CASE("an owner that dies while it sends leaves the copy before, and the survivor still has that step too") {
    const ScratchFolder scratch;
    Agents agents;
    // So the second part of a copy is sent eight seconds after the first.
    const CheckpointOptions slow{.copy_bytes_per_second = 1u << 17};
    std::barrier all(2), begun(2);
    const auto wrong = round_with_agents(
        scratch / "c", 2, 0, agents,
        [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            const auto late = train(checkpointer, model, 10, all);
            begun.arrive_and_wait();
            model.train_to(11);
            auto done = checkpointer.snapshot(11, model.state());
            if (done) done = checkpointer.finish();
            if (!late.empty() || !done) return late.empty() ? done.error().context : late;
            return checkpointer.copied_step() == 10 ? "" : "step 11 was there too soon";
        },
        {0, 1}, slow);
    REQUIRE(wrong == "");
    CHECK(agents.copies(0) == "1@10");
    agents.lose(1);
    CHECK(loaded(scratch / "c", 2, agents) == "memory 10");
}

TEST_CASE("saves that wait for copies to the next node do not keep the shared directory waiting") {
    std::string excluded, names;
    // Once more where a busy disk was not through before a copy can be.
    auto took = Duration::max();
    for (int tries = 0; tries < 3 && took > before_a_slow_copy; ++tries) {
        const ScratchFolder scratch;
        Agents agents;
        const CheckpointOptions slow{
            .local_directory = scratch / "l", .shared_every = 3, .copy_bytes_per_second = copy_bytes_per_second_min};
        excluded.clear();
        const auto began = std::chrono::steady_clock::now();
        const auto wrong = round_with_agents(
            scratch / "c", 2, 0, agents,
            [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                for (const std::int64_t step : {10, 20, 30, 40}) {
                    model.train_to(step);
                    const auto saved = checkpointer.save(step, model.state(), WhenBusy::skip);
                    if (!saved) return saved.error().context;
                    (void)checkpointer.finish();
                }
                if (model.rank != 0) return {};
                took = std::chrono::steady_clock::now() - began;
                for (const auto& report : checkpointer.reports())
                    if (!report.persisted) excluded += cat(report.step, ' ');
                return {};
            },
            {0, 1}, slow);
        CHECK(wrong == "");
        names = names_of(scratch / "c");
    }
    CHECK(excluded == "20 30 ");
    CHECK(names == "IDENTITY LATEST LOCK step_00000010 step_00000040");
}

TEST_CASE("memory that is still being sent is not written by the saves that come meanwhile") {
    const CheckpointOptions slow{.when_busy = WhenBusy::wait, .copy_bytes_per_second = copy_bytes_per_second_min};
    std::optional<Agents> agents;
    std::string wrong;
    // Once more where a busy disk was not through with so many saves before a copy can be.
    std::atomic<bool> is_late = true;
    for (int tries = 0; tries < 3 && is_late; ++tries) {
        const ScratchFolder scratch;
        agents.emplace();
        is_late = false;
        const auto began = std::chrono::steady_clock::now();
        wrong = round_with_agents(
            scratch / "c", 2, 0, *agents,
            [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                for (const std::int64_t step : {10, 20, 30, 40, 50}) {
                    model.train_to(step);
                    auto saved = checkpointer.save(step, model.state());
                    if (saved) saved = checkpointer.finish();
                    if (!saved) return saved.error().context;
                }
                const bool is_copied = checkpointer.copied_step() == 10;
                if (std::chrono::steady_clock::now() - began > before_a_slow_copy) is_late = true;
                return is_copied ? "the copy was too fast" : copied(checkpointer, 10);
            },
            {0, 1}, slow);
    }
    REQUIRE(wrong == "");
    for (const int rank : {0, 1}) {
        const auto& copy = agents->newest(rank, 1 - rank);
        const auto memory = runtime::SharedSegment::map(copy.memory, copy.size_bytes);
        REQUIRE(memory.has_value());
        const auto file = runtime::read_whole({memory->data(), copy.size_bytes});
        REQUIRE(file.has_value());
        CHECK(file->step == 10);
    }
}

namespace {

/// Two ranks of which each sends the other a copy, and has as many others beside it; the step that was copied.
std::int64_t copied_among(int ranks_here) {
    Agents agents;
    ThreadGroup threads(2);
    const auto place = std::make_shared<MeetingInMemory>();
    std::atomic<std::int64_t> least = 99;
    const auto wrong = threads.run([&](Communicator& communicator) -> std::string {
        const int rank = communicator.rank(), other = 1 - rank;
        auto group = loopback_group(place, {0, 1}, rank);
        if (!group) return group.error().context;
        NeighbourCopies::Terms terms{.group = std::move(*group),
                                     .target = other,
                                     .ranks_here = ranks_here,
                                     .sources = {{other, other}},
                                     .snapshots = agents.link(rank)};
        auto copies = NeighbourCopies::start(std::move(terms));
        if (!copies) return copies.error().context;
        std::vector<std::byte> memory(1u << 20);
        (*copies)->begin(memory, 7);
        (*copies)->finish();
        for (auto now = least.load(); (*copies)->copied_step() < now;) {
            if (least.compare_exchange_weak(now, (*copies)->copied_step())) break;
        }
        return {};
    });
    CHECK(wrong == "");
    return least;
}

}  // namespace

TEST_CASE("copies are kept only where all ranks of the node together have the memory for them") {
    CHECK(copied_among(1) == 7);
    CHECK(copied_among(10'000'000) == -1);
}
