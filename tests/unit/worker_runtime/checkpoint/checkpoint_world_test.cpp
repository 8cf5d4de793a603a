// A world that changes between saving and loading, and saves that come faster than the disk.
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"

#include "rendezvous/base/text/text.h"

using namespace muster;
using namespace muster::test;

TEST_CASE("a checkpoint of any world of 1 to 5 is loaded in any other") {
    for (int saved = 1; saved <= effort(5, 3); ++saved) {
        const ScratchFolder scratch;
        REQUIRE(save_steps(scratch / "c", saved, 0, {10}) == "");
        for (int loaded = 1; loaded <= effort(5, 3); ++loaded) {
            INFO("from " << saved << " to " << loaded);
            CHECK(load_in(scratch / "c", loaded, loaded, saved == loaded) == "step 10");
        }
    }
}

TEST_CASE("a rank's own text comes back to that rank, and is empty where the saved world had none") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10}) == "");
    const auto wrong =
        with_checkpointers(scratch / "c", 3, 1, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            if (auto loaded = checkpointer.load(state); !loaded) return loaded.error().context;
            const auto expected = model.rank < 2 ? cat("generator of ", model.rank, " at 10") : "";
            return state.rank_value == expected ? "" : cat("rank ", model.rank, " has '", state.rank_value, "'");
        });
    CHECK(wrong == "");
}

TEST_CASE("saves that come too fast are left out by all ranks alike, and said so") {
    const ScratchFolder scratch;
    std::vector<std::vector<bool>> persisted(3);
    const auto wrong =
        with_checkpointers(scratch / "c", 3, 0, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (std::int64_t step = 0; step < 40; ++step) {
                if (auto saved = checkpointer.save(step, model.state()); !saved) return saved.error().context;
            }
            const auto done = checkpointer.finish();
            const auto reports = checkpointer.reports();
            if (reports.size() != 40) return cat(reports.size(), " reports");
            // A skipped one is reported at once, before those that are still being written.
            std::vector<bool> by_step(40);
            for (const auto& report : reports) {
                by_step[static_cast<std::size_t>(report.step)] = report.persisted;
                if (!report.persisted && !report.trouble.starts_with("the previous save")) return report.trouble;
            }
            // Also where the one that kept it out was saved after it was left out, on this rank.
            if (done.has_value() != by_step.back()) return cat("rank ", model.rank, ": finish() has the wrong answer");
            persisted[static_cast<std::size_t>(model.rank)] = by_step;
            return {};
        });
    CHECK(wrong == "");
    CHECK(persisted[0] == persisted[1]);
    CHECK(persisted[0] == persisted[2]);
    CHECK(persisted[0][0]);
}

TEST_CASE("a rank that cannot copy its share fails the save on all ranks at once") {
    const ScratchFolder scratch;
    std::vector<std::string> told(2);
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 0, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            // More than any machine has, of rank 1 alone.
            if (model.rank == 1) {
                state.tensors.push_back(
                    StateTensor::shard("huge", TensorType::u8, {1LL << 50}, model.weight.data(), 0, 1ULL << 50));
            }
            const auto saved = checkpointer.save(1, state);
            if (!saved) return saved.error().context;
            const auto done = checkpointer.finish();
            if (done) return "it was saved";
            told[static_cast<std::size_t>(model.rank)] = done.error().context;
            return {};
        });
    CHECK(wrong == "");
    CHECK_THAT(told[0], Catch::Contains("rank 1") && Catch::Contains("memory"));
    CHECK_THAT(told[1], Catch::Contains("memory"));
}
