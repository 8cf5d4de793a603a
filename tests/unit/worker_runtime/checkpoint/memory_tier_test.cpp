// Copies that outlive their workers, with ranks that are threads and an agent that is a map.
#include <filesystem>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/kept_snapshots.h"

using namespace muster;
using namespace muster::test;
using runtime::OfferedSnapshot;

namespace {

/// Saves step 10 on the disk, and gives a copy of step 15 to the agents.
std::string train_to_15(const std::string& directory, int world, Agents& agents) {
    return round_with_agents(directory, world, 0, agents,
                             [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                                 model.train_to(10);
                                 auto saved = checkpointer.save(10, model.state());
                                 if (saved) saved = checkpointer.finish();
                                 model.train_to(15);
                                 if (saved) saved = checkpointer.snapshot(15, model.state());
                                 if (saved) saved = checkpointer.finish();
                                 return saved ? "" : saved.error().context;
                             });
}

}  // namespace

TEST_CASE("a round goes on from what the agents kept, where that is newer than the disk") {
    for (int world = 1; world <= 4; ++world) {
        const ScratchFolder scratch;
        Agents agents;
        REQUIRE(train_to_15(scratch / "c", world, agents) == "");
        CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010");
        CHECK(loaded(scratch / "c", world, agents) == "memory 15");
    }
}

TEST_CASE("joiners receive what survivors have, and a part that nobody has sends all to the disk") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");
    CHECK(loaded(scratch / "c", 4, agents, false) == "memory 15");
    CHECK(loaded(scratch / "c", 1, agents, false) == "disk 10");
    agents.lose(1);
    CHECK(loaded(scratch / "c", 2, agents) == "disk 10");
}

TEST_CASE("a damaged copy counts as none") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");  // of which the agents have step 10 too
    const auto size = static_cast<off_t>(agents.newest(1).size_bytes);
    for (const off_t at : {off_t{3}, off_t{20}, size - 1}) {
        flip_byte(agents.newest(1), at);
        CHECK(loaded(scratch / "c", 2, agents) == "memory 10");
        flip_byte(agents.newest(1), at);
    }
    CHECK(loaded(scratch / "c", 2, agents) == "memory 15");
}

TEST_CASE("the disk is taken where it is newer") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");
    REQUIRE(save_steps(scratch / "c", 2, 0, {20}) == "");
    CHECK(loaded(scratch / "c", 2, agents) == "disk 20");
}

TEST_CASE("the agent's copy stays whole while the next one is made") {
    const ScratchFolder scratch;
    Agents agents;
    const auto wrong = round_with_agents(
        scratch / "c", 2, 0, agents, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (std::int64_t step = 1; step <= 7; ++step) {
                model.train_to(step);
                auto kept = checkpointer.snapshot(step, model.state());
                if (kept) kept = checkpointer.finish();
                if (!kept) return kept.error().context;
            }
            // An eighth that one rank cannot make.
            auto state = model.state();
            model.train_to(8);
            state = model.state();
            if (model.rank == 1) {
                state.tensors.push_back(
                    StateTensor::shard("huge", TensorType::u8, {1LL << 50}, model.weight.data(), 0, 1ULL << 50));
            }
            auto kept = checkpointer.snapshot(8, state);
            return kept ? "" : kept.error().context;
        });
    CHECK(wrong == "");
    CHECK(loaded(scratch / "c", 2, agents) == "memory 7");
}

TEST_CASE("copies of another directory, or of two saves of one step, are not taken for one") {
    const ScratchFolder scratch;
    Agents agents;
    // Two checkpointers of one worker share its agent.
    const auto saved = [&](const std::string& folder, std::int64_t step, std::int64_t contents) {
        return round_with_agents(scratch / folder, 2, 0, agents,
                                 [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                                     model.train_to(contents);
                                     auto done = checkpointer.save(step, model.state());
                                     if (done) done = checkpointer.finish();
                                     return done ? "" : done.error().context;
                                 });
    };
    REQUIRE(saved("model", 10, 10) == "");
    REQUIRE(saved("average", 12, 99) == "");
    CHECK(loaded(scratch / "model", 2, agents) == "memory 10");
    // Of rank 1 the agents have lost the first save of step 20, of rank 0 they have both.
    REQUIRE(saved("model", 20, 98) == "");
    agents.lose(1);
    REQUIRE(saved("model", 20, 20) == "");
    CHECK(loaded(scratch / "model", 2, agents) == "memory 20");
}

TEST_CASE("without an agent a snapshot is nothing, and costs nothing") {
    const ScratchFolder scratch;
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 0, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto kept = checkpointer.snapshot(3, model.state());
            if (kept) kept = checkpointer.snapshot(-1, model.state());
            return kept ? "a negative step was taken" : kept.error().context;
        });
    CHECK_THAT(wrong, Catch::Contains("step -1"));
    CHECK(load_in(scratch / "c", 2, 1) == "none");
}

TEST_CASE("copies of a directory that was emptied since are not taken") {
    const ScratchFolder scratch;
    Agents agents;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");
    std::filesystem::remove_all(scratch / "c");
    CHECK(loaded(scratch / "c", 2, agents) == "none");
}

TEST_CASE("the hosts' disks are taken where they are newer than what the agents have") {
    const ScratchFolder scratch;
    Agents agents, started_later;
    REQUIRE(train_to_15(scratch / "c", 2, agents) == "");
    const CheckpointOptions options{.local_directory = scratch / "l", .shared_every = 2, .when_busy = WhenBusy::wait};
    const auto wrong = round_with_agents(
        scratch / "c", 2, 1, started_later,
        [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (const std::int64_t step : {20, 30}) {
                model.train_to(step);
                auto saved = checkpointer.save(step, model.state());
                if (saved) saved = checkpointer.finish();
                if (!saved) return saved.error().context;
            }
            return {};
        },
        {}, options);
    REQUIRE(wrong == "");
    CHECK(loaded(scratch / "c", 2, agents, true, options) == "local 30");
    CHECK(loaded(scratch / "c", 2, started_later, true, options) == "memory 30");
}

TEST_CASE("a snapshot that is being made costs no save") {
    const ScratchFolder scratch;
    Agents agents;
    const auto wrong = round_with_agents(scratch / "c", 2, 0, agents,
                                         [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                                             for (std::int64_t step = 1; step <= 20; step += 2) {
                                                 model.train_to(step);
                                                 auto done = checkpointer.snapshot(step, model.state());
                                                 if (done)
                                                     done = checkpointer.save(step + 1, model.state(), WhenBusy::skip);
                                                 if (done) done = checkpointer.finish();
                                                 if (!done) return done.error().context;
                                             }
                                             return {};
                                         });
    CHECK(wrong == "");
}

TEST_CASE("a snapshot does not make up for a save that was left out") {
    const ScratchFolder scratch;
    Agents agents;
    const auto wrong = round_with_agents(scratch / "c", 1, 0, agents,
                                         [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                                             for (std::int64_t step = 1; step < 200; step += 2) {
                                                 model.train_to(step);
                                                 auto done = checkpointer.save(step, model.state());
                                                 if (done)
                                                     done = checkpointer.save(step + 1, model.state(), WhenBusy::skip);
                                                 if (!done) return done.error().context;
                                                 if (checkpointer.finish())
                                                     continue;  // the disk was so fast that none was left out
                                                 done = checkpointer.snapshot(step + 2, model.state());
                                                 if (!done) return done.error().context;
                                                 done = checkpointer.finish();
                                                 return done ? "the save that was left out is forgotten" : "";
                                             }
                                             return "no save was left out";
                                         });
    CHECK(wrong == "");
}
