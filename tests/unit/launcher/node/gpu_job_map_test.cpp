#include "launcher/node/gpu_job_map.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/host/gpu_count.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/kernel/read_file.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;
namespace fs = std::filesystem;

namespace {

struct MapFolder {
    MapFolder() {
        std::string name = fs::temp_directory_path() / "muster_jobs_XXXXXX";
        path = ::mkdtemp(name.data());
    }
    ~MapFolder() { fs::remove_all(path); }
    [[nodiscard]] std::string text(const char* gpu) const { return read_file(path / gpu); }
    void put(const char* gpu, std::string_view text) const { std::ofstream(path / gpu) << text; }
    fs::path path;
};

}  // namespace

TEST_CASE("a job has one line for each of its GPUs, and takes only its own away") {
    const MapFolder folder;
    folder.put("0", "other");  // without a line's end
    folder.put("2", "train\n");
    {
        GpuJobMap map(folder.path, "train");
        REQUIRE(map.add({0, 1, 2}).has_value());
        CHECK(folder.text("0") == "other\ntrain\n");
        CHECK(folder.text("1") == "train\n");
        CHECK(folder.text("2") == "train\n");
        folder.put("0", "other\ntrain\nlater\n");
    }
    CHECK(folder.text("0") == "other\nlater\n");
    CHECK_FALSE(fs::exists(folder.path / "1"));
    // It was there before, so it is another one's.
    CHECK(folder.text("2") == "train\n");
}

TEST_CASE("two jobs share a GPU, and each ends by itself") {
    const MapFolder folder;
    auto first = std::make_unique<GpuJobMap>(folder.path, "a");
    GpuJobMap second(folder.path, "b");
    REQUIRE(first->add({3}).has_value());
    REQUIRE(second.add({3}).has_value());
    CHECK(folder.text("3") == "a\nb\n");
    first.reset();
    CHECK(folder.text("3") == "b\n");
    second.release();
    CHECK(fs::is_empty(folder.path));
}

TEST_CASE("the process that was forked before the GPUs were known removes the lines of the dead one") {
    const MapFolder folder;
    GpuJobMap map(folder.path, "train");
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const auto guardian = ::fork();
    if (guardian == 0) {
        char byte = 0;
        if (::read(ends[0], &byte, 1) == 1) map.release();
        ::_exit(0);
    }
    folder.put("5", "other\n");
    REQUIRE(map.add({4, 5}).has_value());
    REQUIRE(::write(ends[1], "x", 1) == 1);
    ::waitpid(guardian, nullptr, 0);
    ::close(ends[0]);
    ::close(ends[1]);
    CHECK_FALSE(fs::exists(folder.path / "4"));
    CHECK(folder.text("5") == "other\n");
}

TEST_CASE("names cannot break the page of dcgm-exporter, nor add a line") {
    CHECK(GpuJobMap::line_of("a\"b\\c\nd") == "a_b_c_d");
    CHECK(GpuJobMap::line_of("naïve 1") == "naïve 1");
}

TEST_CASE("a missing directory is left alone, and what cannot be written is an error without a half of it") {
    const MapFolder folder;
    const auto missing = folder.path / "missing";
    GpuJobMap elsewhere(missing, "train");
    CHECK(elsewhere.add({0}).has_value());
    CHECK_FALSE(fs::exists(missing));

    folder.put("victim", "precious\n");
    fs::create_symlink(folder.path / "victim", folder.path / "0");
    GpuJobMap map(folder.path, "train");
    CHECK(map.add({0}).error().context.find("read ") == 0);
    fs::create_directories(folder.path / "1.new" / "inner");
    CHECK(map.add({1}).error().context.find("write ") == 0);
    folder.put("2", std::string(70'000, 'x'));
    CHECK(map.add({2}).error().context.find("read ") == 0);
    map.release();
    CHECK(folder.text("victim") == "precious\n");
    CHECK(fs::is_symlink(folder.path / "0"));
    CHECK(folder.text("2").size() == 70'000);

    REQUIRE(map.add({4}).has_value());
    const FileDescriptor held(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(held.get(), LOCK_EX) == 0);
    CHECK(map.add({3}).error().code == Errc::timed_out);
    map.release();
    CHECK_FALSE(fs::exists(folder.path / "4"));
}

TEST_CASE("the GPUs of the workers are those that CUDA shows first, without partitioned ones") {
    std::vector<GpuDevice> devices(4);
    devices[2].mig_enabled = true;
    devices[2].mig_uuids = {"MIG-x", "MIG-y"};
    CHECK(gpus_of_workers(devices, "3,1", 1) == std::vector<std::size_t>{3});
    CHECK(gpus_of_workers(devices, "3,1", 8) == std::vector<std::size_t>{1, 3});
    CHECK(gpus_of_workers(devices, std::nullopt, 8) == std::vector<std::size_t>{0, 1, 3});
    CHECK(gpus_of_workers(devices, "", 8).empty());
}
