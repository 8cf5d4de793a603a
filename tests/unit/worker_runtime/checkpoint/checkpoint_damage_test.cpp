// What is on the disk is damaged, or the disk gives trouble.
#include <sys/stat.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/other_user.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/files/folders.h"

using namespace muster;
using namespace muster::test;

namespace fs = std::filesystem;

namespace {

void flip_byte(const std::string& path, std::int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(byte);
}

/// What load() tells of the checkpoints it passed over.
std::string skipped_in(const std::string& directory, int world) {
    std::string told;
    const auto wrong =
        with_checkpointers(directory, world, 9, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            auto loaded = checkpointer.load(state);
            if (!loaded) return loaded.error().context;
            if (!loaded->has_value()) return "none";
            if (model.rank == 0) told = cat("step ", (*loaded)->step, ": ", join((*loaded)->skipped, "; "));
            return {};
        });
    return wrong.empty() ? told : wrong;
}

}  // namespace

TEST_CASE("a damaged checkpoint is passed over for the one before it, and the reason is told") {
    const auto damaged = [](const std::function<void(const std::string& folder)>& damage) {
        const ScratchFolder scratch;
        REQUIRE(save_steps(scratch / "c", 2, 0, {10, 20}) == "");
        damage(scratch / "c/step_00000020");
        const auto told = skipped_in(scratch / "c", 2);
        CHECK(load_in(scratch / "c", 2, 10) == "step 10");
        CHECK(fs::exists(scratch / "c/step_00000020"));  // left for a person to look at
        return told;
    };
    CHECK_THAT(damaged([](const auto& folder) { flip_byte(folder + "/rank_00001.safetensors", 5000); }),
               Catch::Contains("step 10: step_00000020: ") && Catch::Contains("rank_00001.safetensors: tensor ") &&
                   Catch::Contains("damaged (checksum)"));
    CHECK_THAT(damaged([](const auto& folder) { fs::resize_file(folder + "/rank_00000.safetensors", 9000); }),
               Catch::Contains("rank_00000.safetensors has 9000 bytes, not "));
    CHECK_THAT(damaged([](const auto& folder) { fs::remove(folder + "/rank_00001.safetensors"); }),
               Catch::Contains("rank_00001.safetensors: No such file"));
    CHECK_THAT(damaged([](const auto& folder) { fs::remove(folder + "/manifest.json"); }),
               Catch::Contains("manifest.json"));
    CHECK_THAT(damaged([](const auto& folder) { fs::resize_file(folder + "/manifest.json", 100); }),
               Catch::Contains("manifest:"));
    CHECK_THAT(damaged([](const auto& folder) { flip_byte(folder + "/manifest.json", 60); }),
               Catch::Contains("manifest:"));
    CHECK_THAT(damaged([](const auto& folder) { fs::resize_file(folder + "/manifest.json", 0); }),
               Catch::Contains("manifest:"));
}

TEST_CASE("where no checkpoint is complete, load() says so and why, and does not start over") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10, 20}) == "");
    for (const char* step : {"10", "20"})
        flip_byte(scratch / cat("c/step_000000", step, "/rank_00000.safetensors"), 5000);
    const auto told = load_in(scratch / "c", 2, 1);
    CHECK_THAT(told, Catch::Contains("no checkpoint is complete") && Catch::Contains("step_00000010") &&
                         Catch::Contains("step_00000020"));
    CHECK_THAT(told, Catch::Contains("move them away to start from the beginning"));
}

TEST_CASE("a damaged checkpoint does not count among those that are kept, and stays") {
    const ScratchFolder scratch;
    CheckpointOptions options;
    options.keep_last = 1;
    REQUIRE(save_steps(scratch / "c", 1, 0, {10}) == "");
    REQUIRE(save_steps(scratch / "c", 1, 0, {20}) == "");
    flip_byte(scratch / "c/step_00000020/rank_00000.safetensors", 5000);
    const auto wrong = with_checkpointers(
        scratch / "c", 1, 1,
        [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            if (auto loaded = checkpointer.load(state); !loaded) return loaded.error().context;
            model.train_to(20);
            if (auto saved = checkpointer.save(20, model.state()); !saved) return saved.error().context;
            auto done = checkpointer.finish();
            return done ? "" : done.error().context;
        },
        options);
    CHECK(wrong == "");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000020 step_00000020.2");
    CHECK(load_in(scratch / "c", 1, 2) == "step 20");
}

TEST_CASE("a draft that lacks nothing but its manifest is finished by the next round, another is removed") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10, 20, 30}, {.keep_last = 5}) == "");
    const auto back_to_draft = [&](const std::string& step) {
        const auto draft = scratch / ("c/step_000000" + step + ".tmp-0-feed");
        fs::rename(scratch / ("c/step_000000" + step), draft);
        return draft;
    };
    SECTION("complete, without a manifest") {
        fs::remove(back_to_draft("30") + "/manifest.json");
    }
    SECTION("complete, with half a manifest") {
        fs::resize_file(back_to_draft("30") + "/manifest.json", 77);
    }
    SECTION("complete") {
        back_to_draft("30");
    }
    SECTION("two of them: the newer one is taken") {
        back_to_draft("20");
        back_to_draft("30");
        CHECK(load_in(scratch / "c", 2, 1) == "step 30");
        CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000030");
        return;
    }
    SECTION("a rank's file is missing") {
        fs::remove(back_to_draft("30") + "/rank_00001.safetensors");
        CHECK(load_in(scratch / "c", 2, 1) == "step 20");
        CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000020");
        return;
    }
    SECTION("a rank's file is damaged") {
        flip_byte(back_to_draft("30") + "/rank_00001.safetensors", 5000);
        CHECK(load_in(scratch / "c", 2, 1) == "step 20");
        return;
    }
    SECTION("a rank's file cannot be read at this start, but at the next one") {
        const auto file = back_to_draft("30") + "/rank_00001.safetensors";
        fs::rename(file, scratch / "aside");
        fs::create_directory(file);
        CHECK(load_in(scratch / "c", 2, 1) == "step 20");
        REQUIRE(fs::exists(file));
        fs::remove(file);
        fs::rename(scratch / "aside", file);
        CHECK(load_in(scratch / "c", 2, 2) == "step 30");
        return;
    }
    SECTION("another user's, who may have planted it: it is left alone") {
        if (!test::may_be_another_user()) return;
        REQUIRE(::chown(back_to_draft("30").c_str(), 65534, 65534) == 0);
        CHECK(load_in(scratch / "c", 2, 1) == "step 20");
        CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000020 step_00000030.tmp-0-feed");
        return;
    }
    SECTION("a link to a folder elsewhere") {
        fs::rename(back_to_draft("30"), scratch / "elsewhere");
        fs::create_directory_symlink(scratch / "elsewhere", scratch / "c/step_00000030.tmp-0-feed");
        CHECK(load_in(scratch / "c", 2, 1) == "step 20");
        CHECK(fs::exists(scratch / "elsewhere/rank_00000.safetensors"));
        return;
    }
    CHECK(load_in(scratch / "c", 2, 1) == "step 30");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000020 step_00000030");
}

TEST_CASE("leftovers go, and what is not ours stays") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 1, 0, {10}) == "");
    fs::create_directories(scratch / "c/.trash-step_00000001/x");
    fs::create_directories(scratch / "c/step_00000007.tmp-0-dead");
    fs::create_directories(scratch / "c/mine");
    CHECK(load_in(scratch / "c", 1, 1) == "step 10");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK mine step_00000010");
}

TEST_CASE("a save that fails is reported, training goes on, and the checkpoint before it stays") {
    const ScratchFolder scratch;
    std::string told;
    std::barrier both(2);  // the folder goes before either saves, and comes back when neither does
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 0, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            model.train_to(10);
            if (auto saved = checkpointer.save(10, model.state()); !saved) return saved.error().context;
            if (auto done = checkpointer.finish(); !done) return done.error().context;
            if (model.rank == 0) fs::rename(scratch / "c", scratch / "gone");
            both.arrive_and_wait();
            model.train_to(20);
            if (auto saved = checkpointer.save(20, model.state(), WhenBusy::wait); !saved) return saved.error().context;
            const auto failed = checkpointer.finish();
            if (failed) return "a save into a folder that is gone went well";
            const auto reports = checkpointer.reports();
            if (reports.size() != 2 || reports[1].persisted) return "no report";
            if (model.rank == 1) told = reports[1].trouble;
            both.arrive_and_wait();
            if (model.rank == 0) fs::rename(scratch / "gone", scratch / "c");
            both.arrive_and_wait();
            model.train_to(30);
            if (auto saved = checkpointer.save(30, model.state()); !saved) return saved.error().context;
            auto done = checkpointer.finish();
            return done ? "" : done.error().context;
        });
    CHECK(wrong == "");
    CHECK_THAT(told, Catch::Contains("make the folder") && Catch::Contains("No such file or directory"));
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000030");
}

TEST_CASE("a checkpoint of another model is refused, naming the first tensor that differs, and memory is untouched") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10}) == "");
    const auto refusal = [&](const std::function<void(CheckpointState&)>& change) {
        return with_checkpointers(scratch / "c", 2, 1,
                                  [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
                                      auto state = model.state();
                                      change(state);
                                      const auto loaded = checkpointer.load(state);
                                      if (loaded) return "it was taken";
                                      for (const auto value : model.weight) {
                                          if (value != 0) return "memory was written";
                                      }
                                      return loaded.error().context;
                                  });
    };
    CHECK_THAT(refusal([](auto& state) {
                   state.tensors[0].shape = {1, 3};
               }),
               Catch::Contains("another model: tensor 'counts' is I64[3] there and I64[1, 3] here"));
    CHECK_THAT(refusal([](auto& state) { state.tensors[0].type = TensorType::f64; }),
               Catch::Contains("I64[3] there and F64[3]"));
    CHECK_THAT(refusal([](auto& state) { state.tensors[1].name = "other"; }),
               Catch::Contains("it has no tensor 'other'"));
    CHECK_THAT(refusal([](auto& state) { state.tensors.erase(state.tensors.begin() + 1); }),
               Catch::Contains("it has a tensor 'net.weight', which the state does not have"));
}
