#include "agent/evidence/torch_hook.h"

#include <filesystem>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace fs = std::filesystem;

TEST_CASE("torch's recorder is hooked where it is enabled by name, and only there") {
    const auto wanted = [](const std::map<std::string, std::string>& environment) {
        return TorchHook(environment).wanted();
    };
    CHECK_FALSE(wanted({}));
    CHECK(wanted({{"TORCH_FR_BUFFER_SIZE", "2000"}}));
    CHECK(wanted({{"TORCH_NCCL_TRACE_BUFFER_SIZE", "1"}}));
    CHECK_FALSE(wanted({{"TORCH_FR_BUFFER_SIZE", "0"}}));
    CHECK_FALSE(wanted({{"TORCH_FR_BUFFER_SIZE", ""}}));
}

TEST_CASE("the hook is a distribution with an entry point of torch's, and is gone with its owner") {
    const test::ScratchFolder folder;
    const auto directory = folder / "torch";
    {
        TorchHook hook({});
        CHECK(hook.directory().empty());
        CHECK(hook.socket(0).empty());
        REQUIRE(hook.lay(folder.string()).has_value());
        CHECK(fs::exists(directory + "/muster_torch_hook.py"));
        CHECK(fs::exists(directory + "/muster_torch_hook-1.dist-info/entry_points.txt"));
        CHECK(fs::exists(directory + "/muster_torch_hook-1.dist-info/METADATA"));
        fs::create_directory(hook.socket(3));  // of a round before
        REQUIRE(hook.lay(folder.string()).has_value());
        CHECK_FALSE(fs::exists(hook.socket(3)));
    }
    CHECK_FALSE(fs::exists(directory));
}

TEST_CASE("where the hook cannot be laid the reason is told, and nothing is left") {
    TorchHook hook({});
    CHECK(hook.lay("").error().context.find("there is no log directory") != std::string::npos);
    CHECK(hook.lay("/proc/no such place").error().context.find("is not writable") != std::string::npos);
    CHECK(hook.directory().empty());
}
