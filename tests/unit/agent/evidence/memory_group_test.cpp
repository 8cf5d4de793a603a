#include "agent/evidence/memory_group.h"

#include <filesystem>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

constexpr std::int64_t mib = 1 << 20;

/// Control groups of version 2 as far as files show them, mounted at a path with a blank.
struct GroupTree {
    test::ScratchFolder folder;
    std::string root = folder / "group tree";

    GroupTree() { add(""); }

    /// `path` begins with '/', or is empty for the root, which has neither limits nor counters.
    void add(const std::string& path, const std::string& limit = {}, int kills = 0) const {
        std::filesystem::create_directories(root + path);
        write(path + "/cgroup.procs", "");
        if (limit.empty()) return;
        write(path + "/memory.max", limit + "\n");
        write(path + "/memory.events", cat("low 0\nhigh 0\nmax 7\noom 3\noom_kill ", kills, "\noom_group_kill 0\n"));
        write(path + "/memory.oom.group", "0\n");
    }
    void write(const std::string& file, const std::string& text) const { std::ofstream(root + file) << text; }

    [[nodiscard]] std::string mountinfo() const {
        std::string point = root;
        for (auto at = point.find(' '); at != std::string::npos; at = point.find(' ', at))
            point.replace(at, 1, "\\040");
        return cat("30 1 0:26 / ", point, " rw - cgroup2 cgroup2 rw\n");
    }
    [[nodiscard]] std::optional<FoundMemoryGroup> find(const std::string& own) const {
        return find_memory_group(mountinfo(), cat("0::", own, "\n"));
    }
};

}  // namespace

TEST_CASE(
    "version 2: the nearest group that counts is found, and the smallest limit above it with the most that was used") {
    const GroupTree tree;
    tree.add("/pod", cat(300 * mib));
    tree.write("/pod/memory.peak", cat(299 * mib, "\n"));
    tree.add("/pod/job", "max", 4);
    tree.write("/pod/job/memory.peak", "1\n");
    tree.add("/pod/job/workers");  // delegated, and without controllers: its group's parent has processes
    const auto found = tree.find("/pod/job/workers");
    REQUIRE(found);
    CHECK(found->group.path == tree.root + "/pod/job");
    CHECK(found->group.limit_bytes == 300 * mib);
    CHECK(found->group.limited_by == tree.root + "/pod/memory.max");
    CHECK(found->peak_bytes() == 299 * mib);
    CHECK(found->count_kills() == 4);
    CHECK(found->kills_all.empty());
    tree.add("/pod/job", "max", 6);
    CHECK(found->count_kills() == 6);
}

TEST_CASE("version 2: a group whose processes are all ended together is known, wherever above it that is said") {
    const GroupTree tree;
    tree.add("/pod", cat(300 * mib));
    tree.add("/pod/job", "max");
    tree.write("/pod/memory.oom.group", "1\n");
    CHECK(tree.find("/pod/job")->kills_all == tree.root + "/pod/memory.oom.group");
    tree.write("/pod/job/memory.oom.group", "1\n");
    CHECK(tree.find("/pod/job")->kills_all == tree.root + "/pod/job/memory.oom.group");
}

TEST_CASE("version 2: without limits, counters or a view of our own group nothing is claimed") {
    const GroupTree tree;
    tree.add("/free", "max", 1);
    const auto found = tree.find("/free");
    REQUIRE(found);
    CHECK(found->group.limit_bytes == -1);
    CHECK(found->peak_bytes() == -1);  // a kernel before 5.19
    tree.add("/bare");
    CHECK_FALSE(tree.find("/bare"));
    CHECK_FALSE(tree.find("/"));
    CHECK_FALSE(tree.find("/../free"));
    CHECK(count_oom_kills(tree.root + "/no/such/file") == std::nullopt);
    // A group that was removed behind us: the one above it counts.
    CHECK(tree.find("/free/gone (deleted)")->group.path == tree.root + "/free");
}
