// How much memory is left, from made-up /proc and /sys/fs/cgroup.
#include "rendezvous/base/kernel/available_memory.h"

#include <fstream>
#include <map>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using muster::available_memory_bytes;

namespace {

constexpr std::size_t mib = 1 << 20;

std::string number(std::size_t value) {
    return std::to_string(value) + "\n";
}

/// What is left where these files are, and 8 GiB on the host.
std::size_t left_with(const std::string& own_cgroup, const std::map<std::string, std::string>& cgroup_files) {
    const muster::test::ScratchFolder root;
    auto files = cgroup_files;
    files["proc/self/cgroup"] = own_cgroup;
    files.try_emplace("proc/self/mountinfo",
                      "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
                      "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    files["proc/meminfo"] = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n";
    for (const auto& [name, text] : files) {
        std::filesystem::create_directories(std::filesystem::path(root / name).parent_path());
        std::ofstream(root / name) << text;
    }
    return available_memory_bytes(root.string());
}

}  // namespace

TEST_CASE("without a limit the host decides") {
    CHECK(left_with("", {}) == 8192 * mib);
    CHECK(left_with("0::/job\n", {{"sys/fs/cgroup/job/memory.max", "max\n"},
                                  {"sys/fs/cgroup/job/memory.current", number(100 * mib)}}) == 8192 * mib);
    CHECK(left_with("nonsense\n:\n0:\n0::\n:/\n", {}) == 8192 * mib);
}

TEST_CASE("a container with a cgroup namespace of its own finds its limit at the root") {
    const std::map<std::string, std::string> files{{"sys/fs/cgroup/memory.max", number(512 * mib)},
                                                   {"sys/fs/cgroup/memory.current", number(500 * mib)}};
    CHECK(left_with("0::/\n", files) == 12 * mib);
    // Without the namespace, where the path is the host's, too.
    CHECK(left_with("0::/docker/4711\n", files) == 12 * mib);
    // Where the mount shows the container's group alone, and another mount shows something else.
    auto bound = files;
    bound["proc/self/mountinfo"] =
        "29 20 0:26 /other /mnt rw - cgroup2 cgroup rw\n30 20 0:26 /docker/4711 /sys/fs/cgroup rw - cgroup2 cgroup "
        "rw\n";
    bound["sys/fs/cgroup/inner/memory.max"] = number(8 * mib);
    bound["sys/fs/cgroup/inner/memory.current"] = number(mib);
    CHECK(left_with("0::/docker/4711/inner\n", bound) == 7 * mib);
}

TEST_CASE("the tightest limit on the way up counts") {
    const std::map<std::string, std::string> files{{"sys/fs/cgroup/a/memory.max", number(300 * mib)},
                                                   {"sys/fs/cgroup/a/memory.current", number(200 * mib)},
                                                   {"sys/fs/cgroup/a/b/memory.max", number(200 * mib)},
                                                   {"sys/fs/cgroup/a/b/memory.current", number(50 * mib)}};
    CHECK(left_with("0::/a/b\n", files) == 100 * mib);
    CHECK(left_with("0::/a/b/c\n", files) == 100 * mib);
    CHECK(left_with("0::/other\n", files) == 8192 * mib);
}

TEST_CASE("a cgroup of version 1 has its limit, too, in a container or not, beside an empty version 2") {
    const std::string own = "0::/x\n9:cpu,cpuacct:/x\n4:memory:/slurm/job_7\n";
    const std::string folder = "sys/fs/cgroup/memory/";
    const std::map<std::string, std::string> unlimited{{folder + "memory.limit_in_bytes", "9223372036854771712\n"},
                                                       {folder + "memory.usage_in_bytes", number(900 * mib)}};
    CHECK(left_with(own, unlimited) == 8192 * mib);
    auto files = unlimited;
    files[folder + "slurm/job_7/memory.limit_in_bytes"] = number(256 * mib);
    files[folder + "slurm/job_7/memory.usage_in_bytes"] = number(250 * mib);
    CHECK(left_with(own, files) == 6 * mib);
    files[folder + "slurm/job_7/memory.stat"] = "inactive_file 999999999\ntotal_inactive_file 3145728\n";
    CHECK(left_with(own, files) == 9 * mib);
    const std::map<std::string, std::string> container{{folder + "memory.limit_in_bytes", number(64 * mib)},
                                                       {folder + "memory.usage_in_bytes", number(60 * mib)}};
    CHECK(left_with(own, container) == 4 * mib);
    CHECK(left_with("11:cpuset,memory:/docker/4711\n", container) == 4 * mib);
}

TEST_CASE("page cache is free, and shared memory is not") {
    std::map<std::string, std::string> files{{"sys/fs/cgroup/job/memory.max", number(1000 * mib)},
                                             {"sys/fs/cgroup/job/memory.current", number(990 * mib)}};
    CHECK(left_with("0::/job\n", files) == 10 * mib);
    files["sys/fs/cgroup/job/memory.stat"] = "anon 1\nfile " + number(800 * mib) + "shmem " + number(100 * mib) +
                                             "inactive_anon 7\ninactive_file " + number(500 * mib) + "active_file " +
                                             number(200 * mib) + "unevictable 0\n";
    CHECK(left_with("0::/job\n", files) == 710 * mib);
    // Numbers that were not read at one moment.
    files["sys/fs/cgroup/job/memory.stat"] = "inactive_file " + number(2000 * mib);
    CHECK(left_with("0::/job\n", files) == 1000 * mib);
    files["sys/fs/cgroup/job/memory.stat"] = "";
    files["sys/fs/cgroup/job/memory.current"] = number(1001 * mib);
    CHECK(left_with("0::/job\n", files) == 0);
}
