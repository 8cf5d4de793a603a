#include "agent/evidence/gpu_baseline_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// An agent that keeps this and dies without an end.
void die_with(const std::string& directory, const GpuBaseline& baseline, rlim_t room = RLIM_INFINITY) {
    const auto agent = ::fork();
    if (agent == 0) {
        const test::FileSizeLimit limit(room);
        GpuBaselineFile file(directory);
        file.keep(baseline);
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(agent, &status, 0) == agent);
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

bool is_empty(const test::ScratchFolder& folder) {
    return std::filesystem::is_empty(folder.string());
}

}  // namespace

TEST_CASE("what a dead agent found before its workers is taken over once, for the GPUs that are the same") {
    const test::ScratchFolder folder;
    die_with(folder.string(), {{"GPU-a", 300}, {"GPU-b", 5}});
    die_with(folder.string(), {{"GPU-a", 200}});
    GpuBaselineFile file(folder.string());
    CHECK(file.take_over({{"GPU-c", 1}}).empty());
    CHECK(file.take_over({{"GPU-a", 1000}}) == GpuBaseline{{"GPU-a", 200}});
    CHECK(is_empty(folder));
    CHECK(file.take_over({{"GPU-a", 1000}}).empty());
}

TEST_CASE("a baseline that a full disk cuts is none, not a smaller one") {
    const test::ScratchFolder folder;
    die_with(folder.string(), {{"GPU-a", 300}}, std::string_view("GPU-a 30").size());
    CHECK(GpuBaselineFile(folder.string()).take_over({{"GPU-a", 1000}}).empty());
}

TEST_CASE("an agent that lives keeps its own, and leaves nothing behind") {
    const test::ScratchFolder folder;
    {
        GpuBaselineFile first(folder.string());
        first.keep({{"GPU-a", 300}});
        first.keep({{"GPU-a", 20}});
        CHECK_FALSE(is_empty(folder));
        CHECK(GpuBaselineFile(folder.string()).take_over({{"GPU-a", 1000}}).empty());
        CHECK_FALSE(is_empty(folder));
    }
    CHECK(is_empty(folder));
    GpuBaselineFile nowhere(folder / "nothing here");
    nowhere.keep({{"GPU-a", 20}});
    CHECK(nowhere.take_over({{"GPU-a", 20}}).empty());
}
