// The memory that peers may make a daemon hold.
#include <fstream>

#include "rendezvous/base/kernel/memory_limit.h"
#include "rendezvous/base/memory_budget.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using muster::test::ScratchFolder;

TEST_CASE("the memory limit is the lowest one of the control group and its ancestors, in either version") {
    const ScratchFolder root;
    const auto write = [&](const std::string& name, const char* text) {
        const auto path = std::filesystem::path(root.string()) / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    };
    const auto unlimited = memory_budget_bytes(root.string());
    CHECK(unlimited > 8'000'000);
    write("proc/self/mountinfo",
          "30 20 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
          "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    write("proc/self/cgroup", "4:memory:/c\n0::/a/b\n");
    write("sys/fs/cgroup/unified/a/b/memory.max", "max\n");
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(memory_budget_bytes(root.string()) == unlimited);
    write("sys/fs/cgroup/unified/a/memory.max", "8000000\n");
    CHECK(memory_budget_bytes(root.string()) == 4'000'000);
    write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "6000000\n");
    CHECK(memory_budget_bytes(root.string()) == 3'000'000);
    write("sys/fs/cgroup/unified/a/b/memory.max", "4000\n");
    CHECK(memory_budget_bytes(root.string()) == 2'000);
    CHECK(memory_budget_bytes() > 0);
}

TEST_CASE("shared bytes are charged once, until the last reference is gone") {
    const auto budget = std::make_shared<MemoryBudget>(1'000);
    auto first = charged_bytes(std::string(400, 'x'), budget);
    auto second = first;
    CHECK(budget->bytes() == 400);
    CHECK(budget->is_short());
    first.reset();
    CHECK(budget->bytes() == 400);
    CHECK_FALSE(budget->has_room(601));
    second.reset();
    CHECK(budget->bytes() == 0);
    MemoryCharge kept(budget);
    kept.add(300);
    kept.subtract(100);
    CHECK(budget->bytes() == 200);
    CHECK(budget->waiting_bytes() == 0);
}
