#include "agent/checkpoint_progress.h"

#include <filesystem>
#include <future>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

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
    CHECK(disk->looks == 2);
    disk->answers.set_value();
    while (progress.newest("d")->step == 10) continue;
    CHECK(disk->looks >= 2);
}
