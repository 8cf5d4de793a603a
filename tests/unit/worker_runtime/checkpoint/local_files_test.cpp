// Which files of a host's own disk stay, as one rank puts them there.
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/local_directory.h"
#include "worker_runtime/shared_memory/shared_segment.h"

using namespace muster;
using namespace muster::runtime;
using namespace muster::test;

namespace {

/// Rank 3's disk. What lies in the files is nobody's business here.
struct Disk {
    ScratchFolder scratch;
    SharedSegment memory = *SharedSegment::create(file_alignment, "a test");
    LocalDirectory local = LocalDirectory::open(scratch / "l", "4f1d2c3b-5eed1234cafe4321");

    void put(std::int64_t step) {
        const auto done = put(step, {});
        REQUIRE(done.has_value());
    }
    Result<void> put(std::int64_t step, const Interruption& interruption) {
        RankFile file;
        file.step = step;
        file.rank = 3;
        file.size_bytes = 100;
        return local.put(file, {memory.data(), memory.size_bytes()}, interruption);
    }
    void whole(std::int64_t step) {
        put(step);
        local.whole(step);
    }
    /// The steps, or the whole name of what is no finished file of rank 3: "10 20".
    [[nodiscard]] std::string steps() const {
        std::string all;
        for (const auto& entry : std::filesystem::directory_iterator(local.folder())) names_.push_back(entry.path());
        std::sort(names_.begin(), names_.end());
        for (const auto& path : std::exchange(names_, {})) {
            const auto name = path.filename().string();
            const bool own = name.ends_with(".rank_00003.safetensors");
            all += (all.empty() ? "" : " ") + (own ? std::to_string(std::stoi(name.substr(5, 8))) : name);
        }
        return all;
    }
    void touch(const std::string& name) const { std::ofstream(local.folder() + "/" + name) << "half"; }

  private:
    mutable std::vector<std::filesystem::path> names_;
};

Result<void> stop() {
    return Error{Errc::timed_out, "too slow"};
}

}  // namespace

TEST_CASE("half a file never stays: not of a write that failed, nor of this rank's process before") {
    Disk disk;
    disk.touch("step_00000007.rank_00003.safetensors.new");
    disk.touch("step_00000010.rank_00003.safetensors.new");
    disk.touch("step_00000007.rank_00004.safetensors.new");  // another rank may be writing it
    disk.put(10);
    CHECK(disk.steps() == "step_00000007.rank_00004.safetensors.new 10");
    CHECK(disk.put(20, stop).has_error());
    CHECK(disk.steps() == "step_00000007.rank_00004.safetensors.new 10");
}

TEST_CASE("the last step that was told to be safe stays until a later one is") {
    Disk disk;
    disk.whole(10);
    disk.put(20);
    CHECK(disk.steps() == "10 20");
    // The word that 20 was safe may have been lost on its way to this rank: it stays too, until there is another such.
    disk.put(30);
    CHECK(disk.steps() == "10 20 30");
    disk.put(40);
    CHECK(disk.steps() == "10 30 40");
    disk.whole(50);
    CHECK(disk.steps() == "10 40 50");
    disk.put(60);
    CHECK(disk.steps() == "50 60");
}

TEST_CASE("training that has gone back takes the later steps away, and nothing that may be the last safe one") {
    Disk disk;
    disk.whole(40);
    disk.whole(50);
    disk.put(45);
    CHECK(disk.steps() == "40 45");
    CHECK(disk.local.newest() == 45);
    disk.local.whole(45);
    disk.whole(46);
    disk.whole(47);
    CHECK(disk.steps() == "46 47");
}
