// The memory that peers may make a daemon hold.
#include <fstream>

#include "rendezvous/base/kernel/memory_limit.h"
#include "rendezvous/base/memory_budget.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using muster::test::ScratchFolder;

TEST_CASE("the memory limit is the lowest one of the control group and its ancestors") {
    const ScratchFolder folder;
    const auto inner = std::filesystem::path(folder.string()) / "a" / "b";
    std::filesystem::create_directories(inner);
    const auto write = [](const std::filesystem::path& path, const char* text) { std::ofstream(path) << text; };
    CHECK(lowest_memory_limit({}, "memory.max") == 0);
    write(inner / "memory.max", "max\n");
    CHECK(lowest_memory_limit(inner.string(), "memory.max") == 0);
    write(inner.parent_path() / "memory.max", "1000000\n");
    CHECK(lowest_memory_limit(inner.string(), "memory.max") == 1'000'000);
    write(inner / "memory.max", "4000\n");
    CHECK(lowest_memory_limit(inner.string(), "memory.max") == 4'000);
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
