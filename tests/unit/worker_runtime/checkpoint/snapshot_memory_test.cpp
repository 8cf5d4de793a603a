#include "worker_runtime/checkpoint/snapshot_memory.h"

#include <algorithm>
#include <filesystem>
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

int descriptor_count() {
    const std::filesystem::directory_iterator descriptors("/proc/self/fd");
    return static_cast<int>(std::ranges::count_if(descriptors, [](const auto& entry) {
        std::error_code gone;  // the iterator's own may be
        return std::filesystem::read_symlink(entry.path(), gone).native().starts_with("/memfd:muster");
    }));
}

SnapshotMemories three() {
    SnapshotMemories memories;
    for (auto& memory : memories) REQUIRE(memory.grow(1 << 20).has_value());
    return memories;
}

}  // namespace

TEST_CASE("the memory of a failed round stays until other memory is made") {
    const int before = mapping_count();
    SnapshotMemory::leave(three());
    CHECK(mapping_count() == before + 3);
    SnapshotMemory next;
    REQUIRE(next.grow(1 << 20).has_value());
    CHECK(mapping_count() == before + 1);
}

TEST_CASE("the memory of a failed round stays when the next one fails before its first save") {
    const int before = mapping_count();
    SnapshotMemory::leave(three());
    SnapshotMemory::leave({});
    CHECK(mapping_count() == before + 3);
    REQUIRE(SnapshotMemory().grow(1 << 20).has_value());
    CHECK(mapping_count() == before);
}

TEST_CASE("the memories of two checkpointers of a failed round stay") {
    const int before = mapping_count();
    auto first = three();
    auto second = three();
    SnapshotMemory::leave(std::move(first));
    SnapshotMemory::leave(std::move(second));
    CHECK(mapping_count() == before + 6);
    REQUIRE(SnapshotMemory().grow(1 << 20).has_value());
    CHECK(mapping_count() == before);
}

TEST_CASE("the memory of a failed round has no descriptor that a forked data loader would keep it by") {
    const int before = descriptor_count();
    auto memories = three();
    CHECK(descriptor_count() == before + 3);
    SnapshotMemory::leave(std::move(memories));
    CHECK(descriptor_count() == before);
    REQUIRE(SnapshotMemory().grow(1 << 20).has_value());
}
