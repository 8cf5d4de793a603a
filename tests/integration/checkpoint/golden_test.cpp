// A checkpoint that the first version of the format has written: every later version must load it.
#include <filesystem>

#include "tests/integration/checkpoint/saver.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::test;

TEST_CASE("a checkpoint of the format's first version is loaded") {
    const ScratchFolder scratch;
    std::filesystem::copy(GOLDEN_FOLDER, scratch / "c", std::filesystem::copy_options::recursive);
    auto alone = join_shared_group({.rank = 0, .size = 1, .id = "alone", .place = nullptr});
    const auto found = load_alone(alone, {.directory = scratch / "c", .round = 1, .steps = {}});
    REQUIRE(found.has_value());
    CHECK(*found == 7);
}
