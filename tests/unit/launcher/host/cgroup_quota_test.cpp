#include "launcher/host/cgroup_quota.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster::launcher;

namespace {

/// A mount point with files that the kernel would show.
class Mounts {
  public:
    Mounts& has(const std::string& path, const std::string& text) {
        const std::filesystem::path file(folder_ / path);
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << '\n';
        return *this;
    }
    Mounts& has_v1(const std::string& group, const std::string& quota) {
        return has("cpu" + group + "/cpu.cfs_quota_us", quota).has("cpu" + group + "/cpu.cfs_period_us", "100000");
    }
    [[nodiscard]] std::uint32_t quota(std::string_view groups) const {
        return cgroup_cpu_quota(folder_.string(), groups);
    }

  private:
    muster::test::ScratchFolder folder_;
};

}  // namespace

TEST_CASE("the lowest CPU quota of a group and of those above it counts, rounded up (v2)") {
    Mounts mounts;
    mounts.has("slurm/cpu.max", "max 100000").has("slurm/job_1/cpu.max", "250000 100000");
    mounts.has("slurm/job_1/step_0/cpu.max", "400000 100000").has("slurm/job_1/step_1/cpu.max", "50000 100000");
    CHECK(mounts.quota("0::/slurm\n") == 0);
    CHECK(mounts.quota("0::/slurm/job_1/step_0\n") == 3);
    CHECK(mounts.quota("0::/slurm/job_1/step_0/task_0\n") == 3);  // of a group without the controller
    CHECK(mounts.quota("0::/slurm/job_1/step_1\n") == 1);
    CHECK(mounts.quota("0::/slurm/job_10\n") == 0);
    CHECK(mounts.quota("") == 0);
}

TEST_CASE("so it is with the first version's controller, whichever others are mounted with it") {
    Mounts mounts;
    mounts.has_v1("", "-1").has_v1("/a", "200000").has_v1("/a/b", "-1").has_v1("/a/b/c", "300000");
    CHECK(mounts.quota("4:cpu,cpuacct:/a/b/c\n0::/\n") == 2);
    CHECK(mounts.quota("4:cpuacct,cpu:/a/b\n") == 2);
    CHECK(mounts.quota("4:cpuacct:/a/b\n5:cpuset:/a\n") == 0);
}

TEST_CASE("in a container, where the path is the host's, the group itself is at the mount point") {
    CHECK(Mounts().has("cpu.max", "150000 100000").quota("0::/kubepods/pod7/main\n") == 2);
    CHECK(Mounts().has_v1("", "600000").quota("3:cpu:/docker/77\n") == 6);
    CHECK(Mounts().has("cpu.max", "150000 100000").quota("0::/../../other\n") == 2);
}

TEST_CASE("what does not read is no quota") {
    for (const auto* text :
         {"", "max", "0 100000", "-5 100000", "100000", "100000 0", "1 2 3", "9999999999999999999 1"})
        CHECK(Mounts().has("cpu.max", text).quota("0::/\n") == 0);
    CHECK(Mounts().has("cpu/cpu.cfs_quota_us", "100000").quota("1:cpu:/\n") == 0);
}
