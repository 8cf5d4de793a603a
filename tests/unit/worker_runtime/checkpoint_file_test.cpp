#include "worker_runtime/examples/checkpoint_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::runtime;

namespace {

const Checkpoint some_checkpoint{.step = 42, .values = {1.5F, -2.25F, 0.0F, 1e30F}, .sampler = "{}"};

std::string read_all(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("a checkpoint comes back as it was saved") {
    const test::ScratchFolder folder;
    REQUIRE(save_checkpoint(folder / "model", some_checkpoint).has_value());
    const auto loaded = load_checkpoint(folder / "model");
    REQUIRE(loaded.has_value());
    CHECK(**loaded == some_checkpoint);
}

TEST_CASE("a later checkpoint replaces the earlier one and leaves nothing beside it") {
    const test::ScratchFolder folder;
    REQUIRE(save_checkpoint(folder / "model", some_checkpoint).has_value());
    REQUIRE(save_checkpoint(folder / "model", {.step = 43, .values = {7}}).has_value());
    CHECK((*load_checkpoint(folder / "model"))->step == 43);
    CHECK_FALSE(std::filesystem::exists(folder / "model.new"));
}

TEST_CASE("where there is no file there is no checkpoint, and that is no error") {
    const test::ScratchFolder folder;
    const auto loaded = load_checkpoint(folder / "model");
    REQUIRE(loaded.has_value());
    CHECK_FALSE(loaded->has_value());
}

TEST_CASE("a save that cannot finish leaves the previous checkpoint") {
    const test::ScratchFolder folder;
    REQUIRE(save_checkpoint(folder / "model", some_checkpoint).has_value());
    std::filesystem::create_directory(folder / "model.new");  // in the way of the temporary file, also for root
    CHECK(save_checkpoint(folder / "model", {.step = 43, .values = {7}}).has_error());
    CHECK((*load_checkpoint(folder / "model"))->step == 42);
}

TEST_CASE("a checkpoint with any byte changed, or cut anywhere, is refused") {
    const test::ScratchFolder folder;
    REQUIRE(save_checkpoint(folder / "model", some_checkpoint).has_value());
    const auto bytes = read_all(folder / "model");
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        auto damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
        write_all(folder / "model", damaged);
        const auto loaded = load_checkpoint(folder / "model");
        REQUIRE(loaded.has_error());
        REQUIRE(loaded.error().code == Errc::bad_frame);
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        write_all(folder / "model", bytes.substr(0, size));
        REQUIRE(load_checkpoint(folder / "model").has_error());
    }
}
