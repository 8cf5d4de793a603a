#include "agent/channel/checkpoint_progress.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "worker_runtime/checkpoint/files/identity.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::test;

TEST_CASE("the newest checkpoint of a directory is seen, and none where there is no directory") {
    const ScratchFolder scratch;
    for (const auto* name : {"step_00000010", "step_00000020", "step_00000030.tmp-0-feed", "other"})
        std::filesystem::create_directory(scratch / name);
    CheckpointProgress progress(5s);
    const auto newest = progress.newest(scratch.string());
    REQUIRE(newest);
    CHECK(newest->step == 20);
    CHECK(newest->folder == "step_00000020");
    CHECK_FALSE(progress.newest(scratch / "nowhere"));
}

TEST_CASE("a file system that hangs costs the limit once, and what was seen before counts until it answers") {
    struct Disk {
        std::promise<void> answers;
        std::shared_future<void> answered = answers.get_future().share();
        std::atomic<int> looks = 0;
    };
    const auto disk = std::make_shared<Disk>();
    CheckpointProgress progress(20ms, [disk](const std::string&) -> std::optional<NewestCheckpoint> {
        if (++disk->looks == 2) disk->answered.wait();
        return NewestCheckpoint{.step = disk->looks * 10, .folder = "step"};
    });
    std::optional<NewestCheckpoint> seen;
    while (!seen) seen = progress.newest("d");  // however slowly this machine starts a thread
    CHECK(seen->step == 10);
    for (int i = 0; i < 3; ++i) CHECK(progress.newest("d")->step == 10);
    while (disk->looks < 2) std::this_thread::yield();  // that look's thread may start late
    CHECK(disk->looks == 2);
    disk->answers.set_value();
    while (progress.newest("d")->step == 10) continue;
    CHECK(disk->looks >= 2);
}

TEST_CASE("a look that nobody waits for tells what it saw when it has ended, and no other begins before") {
    std::promise<void> answers;
    CheckpointProgress progress(
        5s, [answered = answers.get_future().share()](const std::string& directory) -> std::optional<NewestCheckpoint> {
            answered.wait();
            return NewestCheckpoint{.step = 10, .folder = directory};
        });
    CHECK(progress.has_ended());
    while (!progress.begin("a")) continue;  // this machine may have no thread to give
    CHECK_FALSE(progress.has_ended());
    CHECK_FALSE(progress.begin("b"));
    CHECK_FALSE(progress.known());
    answers.set_value();
    while (!progress.has_ended()) std::this_thread::yield();
    CHECK(progress.known()->folder == "a");
    while (!progress.begin("b")) continue;
    while (!progress.has_ended()) std::this_thread::yield();
    CHECK(progress.known()->folder == "b");
}

TEST_CASE("the newest step of a local disk is one of which it has the files of all workers of this node") {
    const ScratchFolder scratch;
    const auto directory = scratch / "c", local = scratch / "l";
    std::filesystem::create_directory(directory);
    std::ofstream(directory + "/IDENTITY") << "5eed1234cafe4321\n";
    const auto folder = local + "/" + runtime::directory_word(directory, "5eed1234cafe4321");
    CHECK_FALSE(newest_local_save(local, directory, 2));
    std::filesystem::create_directories(folder);
    for (const auto* name : {"10.rank_00000.safetensors", "10.rank_00001.safetensors", "20.rank_00001.safetensors",
                             "20.rank_00000.safetensors.new"})
        std::ofstream(folder + "/step_000000" + name) << "a part";
    REQUIRE(newest_local_save(local, directory, 2));
    CHECK(newest_local_save(local, directory, 2)->step == 10);
    CHECK(newest_local_save(local, directory, 1)->step == 20);
    std::filesystem::remove(directory + "/IDENTITY");
    CHECK_FALSE(newest_local_save(local, directory, 1));
}
