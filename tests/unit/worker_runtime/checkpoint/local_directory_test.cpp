// A disk of each host between the agents' memory and the directory that all share.
#include "worker_runtime/checkpoint/local_directory.h"

#include <filesystem>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"

using namespace muster;
using namespace muster::runtime;
using namespace muster::test;

namespace {

/// Two hosts, where `hosts` says so: the first half of the ranks has one local disk, the others another.
struct Disks {
    ScratchFolder scratch;
    int hosts = 1;

    [[nodiscard]] std::string shared() const { return scratch / "c"; }
    [[nodiscard]] std::string local(int rank, int world) const {
        return scratch / cat("local", hosts == 2 && rank >= (world + 1) / 2 ? 1 : 0);
    }
    /// A round of ranks that each open what is theirs.
    std::string round(int world, std::int64_t number,
                      const std::function<std::string(Checkpointer&, SavedModel&)>& body) const {
        ThreadGroup group(world);
        StoreInMemory store;
        return group.run([&](Communicator& communicator) -> std::string {
            auto opened = Checkpointer::open(communicator, store.connect(), {.job = "job", .round = number},
                                             {.directory = shared(),
                                              .local_directory = local(communicator.rank(), world),
                                              .shared_every = 3,
                                              .when_busy = WhenBusy::wait});
            if (!opened) return opened.error().context;
            SavedModel model(communicator.rank(), communicator.size());
            return body(*opened, model);
        });
    }
    [[nodiscard]] std::string save(int world, std::int64_t number, const std::vector<std::int64_t>& steps) const {
        return round(world, number, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            for (const auto step : steps) {
                model.train_to(step);
                auto saved = checkpointer.save(step, model.state());
                if (saved) saved = checkpointer.finish();
                if (!saved) return saved.error().context;
            }
            return {};
        });
    }
    /// "local 20", "shared 10" or "none", when all ranks have the right model.
    [[nodiscard]] std::string load(int world, std::int64_t number, bool same_world = true) const {
        std::string told;
        const auto wrong = round(world, number, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
            auto state = model.state();
            const auto report = checkpointer.load(state);
            if (!report) return report.error().context;
            if (model.rank == 0) told = "none";
            if (!report->has_value()) return {};
            model.take(state);
            if (!model.is_at((*report)->step, same_world)) return cat("rank ", model.rank, " has another model");
            if (model.rank == 0) told = cat((*report)->from_local_disk ? "local " : "shared ", (*report)->step);
            return {};
        });
        return wrong.empty() ? told : wrong;
    }
    /// All files below the first host's disk, with their names only.
    [[nodiscard]] std::vector<std::filesystem::path> files(int host = 0) const {
        std::vector<std::filesystem::path> found;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch / cat("local", host))) {
            if (entry.is_regular_file()) found.push_back(entry.path());
        }
        std::sort(found.begin(), found.end());
        return found;
    }
};

}  // namespace

TEST_CASE("a round goes on from the hosts' own disks, and every third save is on the shared one too") {
    for (int world = 1; world <= 4; ++world) {
        Disks disks;
        disks.hosts = world > 1 ? 2 : 1;
        REQUIRE(disks.save(world, 0, {10, 20, 30, 40, 50}) == "");
        CHECK(names_of(disks.shared()) == "IDENTITY LATEST LOCK step_00000010 step_00000040");
        CHECK(disks.load(world, 1) == "local 50");
        CHECK(disks.load(world, 2) == "local 50");  // loading takes nothing away
    }
}

TEST_CASE("a world of another size finds the parts on its hosts") {
    Disks disks;
    REQUIRE(disks.save(4, 0, {10, 20}) == "");
    CHECK(disks.load(2, 1, false) == "local 20");
    CHECK(disks.load(6, 2, false) == "local 20");
    CHECK(disks.load(1, 3, false) == "shared 10");  // four parts are more than one rank brings
}

TEST_CASE("a host that is gone, a damaged part and a step that one rank lacks send all to what is whole") {
    Disks disks;
    disks.hosts = 2;
    REQUIRE(disks.save(2, 0, {10, 20, 30}) == "");
    const auto newest = disks.files(1).back();
    SECTION("damaged") {
        std::fstream(newest, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('!');
        CHECK(disks.load(2, 1) == "local 20");
    }
    SECTION("missing") {
        std::filesystem::remove(newest);
        CHECK(disks.load(2, 1) == "local 20");
    }
    SECTION("half written") {
        std::filesystem::rename(newest, newest.string() + ".new");
        CHECK(disks.load(2, 1) == "local 20");
    }
    SECTION("the host") {
        std::filesystem::remove_all(disks.scratch / "local1");
        CHECK(disks.load(2, 1) == "shared 10");
    }
}

TEST_CASE("each rank keeps two steps, and none that training has gone back behind") {
    Disks disks;
    REQUIRE(disks.save(2, 0, {10, 20, 30}) == "");
    CHECK(disks.files().size() == 4);
    for (const auto& file : disks.files()) {
        if (file.filename().string().starts_with("step_00000030.rank_00001")) std::filesystem::remove(file);
    }
    REQUIRE(disks.save(2, 1, {25}) == "");  // of which 30 is no part
    CHECK(disks.files().size() == 4);
    CHECK(disks.load(2, 2) == "local 25");
}

TEST_CASE("the shared directory is taken where it is newer, and other directories' parts are nobody's business") {
    Disks disks;
    REQUIRE(disks.save(2, 0, {10, 20}) == "");
    REQUIRE(save_steps(disks.shared(), 2, 1, {30}) == "");
    CHECK(disks.load(2, 2) == "shared 30");
    const auto moved = disks.files().front().parent_path();
    std::filesystem::rename(moved, moved.parent_path() / "0badf00d");
    CHECK(disks.load(2, 3) == "shared 30");
}

namespace {

/// Trains to `step` and saves it: empty where that came to a disk.
std::string saved(Checkpointer& checkpointer, SavedModel& model, std::int64_t step) {
    model.train_to(step);
    auto done = checkpointer.save(step, model.state());
    if (done) done = checkpointer.finish();
    return done ? "" : done.error().context;
}

/// A file where a folder is to be, and the other way round.
void break_folder(const std::string& path) {
    std::filesystem::remove_all(path);
    std::ofstream(path) << "no folder";
}

}  // namespace

TEST_CASE("a local disk that fails costs the save that has no other place, and the next ones go to the shared one") {
    Disks disks;
    REQUIRE(disks.save(1, 0, {10}) == "");
    const auto local = disks.local(0, 1);
    const auto wrong = disks.round(1, 1, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
        if (auto first = saved(checkpointer, model, 20); !first.empty()) return first;
        break_folder(local);
        if (saved(checkpointer, model, 30).empty()) return "a save without any place is said to be safe";
        if (auto shared = saved(checkpointer, model, 40); !shared.empty()) return shared;
        if (auto again = saved(checkpointer, model, 50); !again.empty()) return again;
        std::filesystem::remove(local);
        if (auto both = saved(checkpointer, model, 60); !both.empty()) return both;
        return saved(checkpointer, model, 70);
    });
    CHECK(wrong == "");
    CHECK(names_of(disks.shared()) == "IDENTITY LATEST LOCK step_00000050 step_00000060");
    CHECK(disks.load(1, 2) == "local 70");
}

TEST_CASE("a local disk that cannot even be opened keeps nobody from training") {
    Disks disks;
    std::filesystem::create_directories(disks.scratch.string());
    break_folder(disks.local(0, 1));
    REQUIRE(disks.save(1, 0, {10, 20, 30}) == "");
    CHECK(names_of(disks.shared()) == "IDENTITY LATEST LOCK step_00000020 step_00000030");
}

TEST_CASE("a save that did not come to the shared directory is made up for by the next one") {
    Disks disks;
    const auto wrong = disks.round(1, 0, [&](Checkpointer& checkpointer, SavedModel& model) -> std::string {
        for (const std::int64_t step : {10, 20, 30}) {
            if (auto trouble = saved(checkpointer, model, step); !trouble.empty()) return trouble;
        }
        std::filesystem::rename(disks.shared(), disks.shared() + ".away");
        if (saved(checkpointer, model, 40).empty()) return "there is no directory, and a save to it is said to be safe";
        std::filesystem::rename(disks.shared() + ".away", disks.shared());
        for (const std::int64_t step : {50, 60, 70}) {
            if (auto trouble = saved(checkpointer, model, step); !trouble.empty()) return trouble;
        }
        return {};
    });
    CHECK(wrong == "");
    CHECK(names_of(disks.shared()) == "IDENTITY LATEST LOCK step_00000010 step_00000050");
}

TEST_CASE("a directory that was emptied begins anew, whatever the hosts' disks still have of it") {
    Disks disks;
    REQUIRE(disks.save(2, 0, {10, 20}) == "");
    REQUIRE(disks.load(2, 1) == "local 20");
    SECTION("removed") {
        std::filesystem::remove_all(disks.shared());
    }
    SECTION("all that is in it removed") {
        for (const auto& entry : std::filesystem::directory_iterator(disks.shared())) remove_all(entry.path());
    }
    SECTION("its checkpoints removed") {
        std::filesystem::remove_all(disks.shared() + "/step_00000010");
    }
    CHECK(disks.load(2, 2) == "none");
    CHECK(disks.load(2, 3) == "none");
    REQUIRE(disks.save(2, 4, {5, 6}) == "");
    CHECK(disks.load(2, 5) == "local 6");
    CHECK(disks.files().size() == 8);  // nobody's files are removed
}

TEST_CASE("another job that has the same path takes nothing of the first one, which finds its own when it comes back") {
    Disks disks;
    REQUIRE(disks.save(2, 0, {10, 20}) == "");
    const auto moved = disks.shared() + ".first";
    std::filesystem::rename(disks.shared(), moved);
    CHECK(disks.load(2, 0) == "none");
    REQUIRE(disks.save(2, 1, {30}) == "");
    CHECK(disks.load(2, 2) == "local 30");
    std::filesystem::remove_all(disks.shared());
    std::filesystem::rename(moved, disks.shared());
    CHECK(disks.load(2, 1) == "local 20");
    // A copy of a directory is another one.
    std::filesystem::copy(disks.shared(), disks.scratch / "copy", std::filesystem::copy_options::recursive);
    CHECK(load_in(disks.scratch / "copy", 2, 2) == "step 10");
}

TEST_CASE("an identity that does not read counts as none, and the next one stays") {
    Disks disks;
    REQUIRE(disks.save(1, 0, {10, 20}) == "");
    for (const auto* text :
         {"", "../../../../etc\n", "5eed1234cafe432\n", "5EED1234CAFE4321\n", "5eed1234cafe4321 \n"}) {
        std::ofstream(disks.shared() + "/IDENTITY") << text;
        CHECK(disks.load(1, 1) == "shared 10");
    }
    REQUIRE(disks.save(1, 2, {20, 30}) == "");
    CHECK(disks.load(1, 3) == "local 30");
    CHECK(disks.load(1, 4) == "local 30");
}

TEST_CASE("ranks that disagree about local directories are told so") {
    const ScratchFolder scratch;
    ThreadGroup group(2);
    StoreInMemory store;
    const auto wrong = group.run([&](Communicator& world) -> std::string {
        CheckpointOptions options{.directory = scratch / "c"};
        if (world.rank() == 1) options.local_directory = scratch / "l";
        const auto opened = Checkpointer::open(world, store.connect(), {.job = "job", .round = 0}, options);
        if (opened) return "it was opened";
        return opened.error().context.find("all ranks need the same") == std::string::npos ? opened.error().context
                                                                                           : "";
    });
    CHECK(wrong == "");
}
