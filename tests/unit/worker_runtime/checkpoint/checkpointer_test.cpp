// Saving and loading, with ranks that are threads.
#include "muster/checkpoint.h"

#include <unistd.h>

#include <barrier>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/files/folders.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

using namespace muster;
using namespace muster::test;

TEST_CASE("what was saved comes back, in worlds of 1 to 4") {
    for (int world = 1; world <= 4; ++world) {
        const ScratchFolder scratch;
        const auto directory = scratch / "a folder/ckpt";
        INFO("world " << world);
        CHECK(load_in(directory, world, 0) == "none");
        CHECK(save_steps(directory, world, 1, {10, 20}) == "");
        CHECK(names_of(directory) == "IDENTITY LATEST LOCK step_00000010 step_00000020");
        CHECK(load_in(directory, world, 2) == "step 20");
    }
}

TEST_CASE("a checkpoint folder holds one file for each rank and a manifest that describes them") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 3, 5, {7}) == "");
    const auto folder = scratch / "c/step_00000007";
    CHECK(names_of(folder) == "manifest.json rank_00000.safetensors rank_00001.safetensors rank_00002.safetensors");
    const auto manifest = runtime::read_manifest(folder).value();
    CHECK(manifest.step == 7);
    CHECK(manifest.round == 5);
    CHECK(manifest.job == "job");
    for (const auto& file : manifest.files) {
        CHECK(runtime::verify_rank_file(cat(folder, '/', file.name)).value() == file.crc32c);
    }
    std::ifstream latest(scratch / "c/LATEST");
    std::string line;
    std::getline(latest, line);
    CHECK(line == "step_00000007");
}

TEST_CASE("save() keeps a copy: what training does afterwards does not reach the disk") {
    const ScratchFolder scratch;
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 0, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            model.train_to(3);
            if (auto saved = checkpointer.save(3, model.state()); !saved) return saved.error().context;
            model.train_to(4);
            auto done = checkpointer.finish();
            return done ? "" : done.error().context;
        });
    CHECK(wrong == "");
    CHECK(load_in(scratch / "c", 2, 1) == "step 3");
}

TEST_CASE("reports tell of each save once, with its folder and times") {
    const ScratchFolder scratch;
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 0, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (const std::int64_t step : {1, 2}) {
                if (auto saved = checkpointer.save(step, model.state(), WhenBusy::wait); !saved)
                    return saved.error().context;
            }
            if (auto done = checkpointer.finish(); !done) return done.error().context;
            const auto reports = checkpointer.reports();
            if (reports.size() != 2 || !checkpointer.reports().empty()) return cat(reports.size(), " reports");
            for (const auto& report : reports) {
                if (!report.persisted || !report.trouble.empty()) return report.trouble;
                if (report.bytes < (model.rank == 0 ? 1'000'000U : 1'000U) || report.persist_ms <= 0)
                    return "no figures";
            }
            return reports[1].path == scratch / "c/step_00000002" ? "" : reports[1].path;
        });
    CHECK(wrong == "");
}

TEST_CASE("only the newest few are kept") {
    const ScratchFolder scratch;
    CheckpointOptions options;
    options.keep_last = 2;
    options.keep_every = 20;
    CHECK(save_steps(scratch / "c", 2, 0, {10, 20, 30, 40, 50, 60, 70}, options) == "");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000020 step_00000040 step_00000060 step_00000070");
}

TEST_CASE("a step that comes again gets a folder of its own, and that one is loaded") {
    const ScratchFolder scratch;
    CHECK(save_steps(scratch / "c", 2, 0, {10}) == "");
    CHECK(save_steps(scratch / "c", 2, 1, {10}) == "");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010 step_00000010.2");
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 2, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            auto loaded = checkpointer.load(state);
            return loaded && (*loaded)->path == scratch / "c/step_00000010.2" ? "" : "the older one was loaded";
        });
    CHECK(wrong == "");
}

TEST_CASE("nothing stays in the store") {
    const ScratchFolder scratch;
    ThreadGroup group(3);
    StoreInMemory store;
    const auto wrong = group.run([&](Communicator& world) -> std::string {
        CheckpointOptions options;
        options.directory = scratch / "c";
        auto checkpointer = Checkpointer::open(world, store.connect(), {.job = "job", .round = 0}, options);
        if (!checkpointer) return checkpointer.error().context;
        SavedModel model(world.rank(), world.size());
        for (std::int64_t step = 0; step < 10; ++step) {
            if (auto saved = checkpointer->save(step, model.state(), WhenBusy::wait); !saved)
                return saved.error().context;
        }
        return {};
    });
    CHECK(wrong == "");
    CHECK(store.key_count() == 1);  // the last verdict
}

TEST_CASE("a second opening in one round does not hear what the first one said") {
    const ScratchFolder scratch;
    ThreadGroup group(2);
    StoreInMemory store;
    std::barrier both(2);
    const auto save_once = [&](Communicator& world, bool folder_goes) -> std::string {
        auto checkpointer =
            Checkpointer::open(world, store.connect(), {.job = "job", .round = 0}, {.directory = scratch / "c"});
        if (!checkpointer) return checkpointer.error().context;
        both.arrive_and_wait();
        if (folder_goes && world.rank() == 0) std::filesystem::rename(scratch / "c", scratch / "gone");
        both.arrive_and_wait();
        SavedModel model(world.rank(), world.size());
        if (auto saved = checkpointer->save(1, model.state()); !saved) return saved.error().context;
        const bool done = checkpointer->finish().has_value();
        return done == !folder_goes ? "" : cat("rank ", world.rank(), " was told the wrong thing");
    };
    CHECK(group.run([&](Communicator& world) { return save_once(world, false); }) == "");
    CHECK(group.run([&](Communicator& world) { return save_once(world, true); }) == "");
}

TEST_CASE("a wrong option on one rank is an error on all") {
    const ScratchFolder scratch;
    ThreadGroup group(3);
    StoreInMemory store;
    std::vector<std::string> told(3);
    group.run([&](Communicator& world) -> std::string {
        const bool wrong = world.rank() == 1;
        const auto opened = Checkpointer::open(world, store.connect(), {.job = "job", .round = 0},
                                               {.directory = scratch / "c", .keep_last = wrong ? 0 : 2});
        told[static_cast<std::size_t>(world.rank())] = opened ? "opened" : opened.error().context;
        return {};
    });
    CHECK(told[1] == "keep_last is 0; at least 1 must be kept");
    CHECK(told[0] == "rank 1: keep_last is 0; at least 1 must be kept");
    CHECK(told[2] == told[0]);
}

TEST_CASE("a state that one rank cannot save is an error on all, and the next save goes well") {
    const ScratchFolder scratch;
    const auto wrong =
        with_checkpointers(scratch / "c", 3, 0, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (const auto policy : {WhenBusy::skip, WhenBusy::wait}) {
                auto state = model.state();
                if (model.rank == 2) state.rank_value = "\xFF";
                const auto refused = checkpointer.save(1, state, policy);
                if (refused) return "it was taken";
                const auto expected = model.rank == 2 ? "UTF-8" : "another rank's state";
                if (refused.error().context.find(expected) == std::string::npos) return refused.error().context;
            }
            auto saved = checkpointer.save(2, model.state());
            if (saved) saved = checkpointer.finish();
            return saved ? "" : saved.error().context;
        });
    CHECK(wrong == "");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000002");
}

TEST_CASE("wrong options and arguments are refused with a sentence") {
    const ScratchFolder scratch;
    CheckpointOptions options;
    options.keep_last = 0;
    CHECK_THAT(save_steps(scratch / "c", 1, 0, {1}, options), Catch::Contains("keep_last is 0"));
    options.keep_last = 1;
    options.keep_every = -1;
    CHECK_THAT(save_steps(scratch / "c", 1, 0, {1}, options), Catch::Contains("keep_every is -1"));
    CHECK_THAT(save_steps("", 1, 0, {1}), Catch::Contains("--checkpoint-dir"));
    CHECK_THAT(save_steps(scratch / "c", 1, 0, {-1}), Catch::Contains("step -1"));
    std::ofstream(scratch / "file") << "x";
    CHECK_THAT(save_steps(scratch / "file", 2, 0, {1}), Catch::Contains(scratch / "file"));
}

TEST_CASE("a directory that cannot be written can be loaded from, and saving to it is refused each time") {
    const ScratchFolder scratch;
    REQUIRE(save_steps(scratch / "c", 2, 0, {10}) == "");
    const bool root = ::geteuid() == 0;
    const auto writable = [&](bool yes) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch.string())) {
            const int mode = (entry.is_directory() ? 0555 : 0444) | (yes ? 0200 : 0);
            std::filesystem::permissions(entry.path(), std::filesystem::perms(mode));
        }
    };
    writable(false);
    std::filesystem::permissions(scratch.string(), std::filesystem::perms(0755));
    if (root) REQUIRE(::seteuid(65534) == 0);
    const auto wrong =
        with_checkpointers(scratch / "c", 2, 1, [](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            const auto loaded = checkpointer.load(state);
            if (!loaded || !*loaded || (*loaded)->step != 10) return loaded ? "nothing loaded" : loaded.error().context;
            for (const std::int64_t step : {11, 12}) {
                if (auto saved = checkpointer.save(step, model.state()); !saved) return saved.error().context;
                const auto done = checkpointer.finish();
                if (done) return "it was saved";
                if (done.error().context.find("can be read but not written") == std::string::npos)
                    return done.error().context;
            }
            return checkpointer.reports().size() == 2 ? "" : "the reports are missing";
        });
    if (root) REQUIRE(::seteuid(0) == 0);
    writable(true);
    CHECK(wrong == "");
    CHECK(names_of(scratch / "c") == "IDENTITY LATEST LOCK step_00000010");
}

TEST_CASE("a disk that hangs in a save keeps nobody for longer than a save may take") {
    /// Hangs where the writer would, until it is told.
    class Hanging final : public runtime::SnapshotLink {
      public:
        bool give(const FileDescriptor&, std::uint64_t, std::int64_t, const std::string&) override {
            answered.wait();
            return false;
        }
        bool give_copy(const FileDescriptor&, std::uint64_t, std::int64_t, int) override { return false; }
        std::vector<runtime::OfferedSnapshot> take_offers(Duration) override { return {}; }
        std::promise<void> answers;
        std::shared_future<void> answered = answers.get_future().share();
    };
    const ScratchFolder scratch;
    ThreadGroup group(1);
    StoreInMemory store;
    const auto wrong = group.run([&](Communicator& world) -> std::string {
        const auto disk = std::make_shared<Hanging>();
        auto opened = Checkpointer::open(world, store.connect(), {.job = "job", .round = 0},
                                         {.directory = scratch / "c", .persist_timeout = 50ms}, disk);
        if (!opened) return opened.error().context;
        SavedModel model(0, 1);
        if (auto saved = opened->save(1, model.state()); !saved) return saved.error().context;
        const auto done = opened->finish();
        const auto next = opened->save(2, model.state(), WhenBusy::wait);  // left out, like any behind a busy disk
        CheckpointState state = model.state();
        const auto loaded = opened->load(state);
        disk->answers.set_value();
        // The writer goes on with folder and store, so this stays until it is through.
        const auto end = std::chrono::steady_clock::now() + 60s;
        for (auto rest = opened->finish(); !rest && rest.error().code == Errc::timed_out; rest = opened->finish()) {
            if (std::chrono::steady_clock::now() > end) return "the writer does not come back";
            std::this_thread::sleep_for(1ms);
        }
        if (done || loaded) return "a disk that hangs is not told of";
        for (const auto& error : {done.error(), loaded.error()}) {
            if (error.code != Errc::timed_out || error.context.find("hang") == std::string::npos) return error.context;
        }
        return next ? "" : next.error().context;
    });
    CHECK(wrong == "");
}
