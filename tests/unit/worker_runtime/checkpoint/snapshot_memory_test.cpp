#include "worker_runtime/checkpoint/snapshot_memory.h"

#include <fstream>
#include <string>
#include <utility>

#include "tests/support/catch.h"

using namespace muster::runtime;

namespace {

int mapping_count() {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("/memfd:muster") != std::string::npos ? 1 : 0;
    return count;
}

}  // namespace

TEST_CASE("the memory of a failed round stays until other memory is made") {
    const int before = mapping_count();
    SnapshotMemories memories;
    for (auto& memory : memories) REQUIRE(memory.grow(1 << 20).has_value());
    SnapshotMemory::leave(std::move(memories));
    CHECK(mapping_count() == before + 3);
    SnapshotMemory next;
    REQUIRE(next.grow(1 << 20).has_value());
    CHECK(mapping_count() == before + 1);
}
