// Files that are damaged, or made to do harm, in the place of a checkpoint's: what is loaded is right or is another
// one, and the reason is told.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "tests/integration/checkpoint/saver.h"
#include "tests/integration/runtime/shared_group.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "worker_runtime/checkpoint/format/crc32c.h"
#include "worker_runtime/checkpoint/format/json_text.h"

using namespace muster;
using namespace muster::test;

namespace fs = std::filesystem;

namespace {

const std::string golden = GOLDEN_FOLDER;
const std::string rank_file = "rank_00000.safetensors", manifest = "manifest.json";

std::string contents_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// A directory with the golden checkpoint of step 7, and a reader of it.
class Directory {
  public:
    Directory() {
        set_log_level(LogLevel::error);
        fs::copy(golden, path_, fs::copy_options::recursive);
    }
    void write(const std::string& name, const std::string& contents) const {
        fs::create_directories(path_of(name).parent_path());
        std::ofstream(path_of(name), std::ios::binary) << contents;
    }
    [[nodiscard]] fs::path path_of(const std::string& name) const { return path_ + "/" + name; }

    /// "step 7", or the error. A checkpoint that is loaded with other values is one.
    std::string load() {
        auto found = load_alone(alone_, {.directory = path_, .round = 1, .steps = {}});
        return found ? cat("step ", *found) : found.error().context;
    }
    /// What load() has passed over, and why.
    std::string skipped() {
        auto checkpointer = Checkpointer::open(alone_, nullptr, {.job = "job", .round = 1}, {.directory = path_});
        TinyModel model(0, 1);
        auto state = model.state();
        auto loaded = checkpointer ? checkpointer->load(state) : checkpointer.error();
        if (!loaded) return loaded.error().context;
        return loaded->has_value() ? join((*loaded)->skipped, "; ") : "nothing";
    }

  private:
    ScratchFolder scratch_;
    const std::string path_ = scratch_ / "c";
    Communicator alone_ = join_shared_group({.rank = 0, .size = 1, .id = "alone", .place = nullptr});
};

/// Puts a checksum that fits into a manifest, so that its reader comes to what lies behind.
std::string with_checksum(std::string text) {
    constexpr std::size_t begin = 11, digits = 8;
    if (text.size() < begin + digits) return text;
    text.replace(begin, digits, digits, '0');
    return text.replace(begin, digits, runtime::crc_text(runtime::crc32c(std::as_bytes(std::span(text)))));
}

/// Of the long row of blanks in a rank's file only some.
bool worth_a_look(const std::string& contents, std::size_t at) {
    return contents[at] != ' ' || at % 97 == 0;
}

}  // namespace

TEST_CASE("no flipped byte and no truncation of a checkpoint's file gives other values") {
    Directory directory;
    std::size_t refused = 0, looks = 0;
    for (const auto& file : {rank_file, manifest}) {
        const auto name = "step_00000007/" + file;
        const auto whole = contents_of(cat(golden, '/', name));
        const auto look = [&](const std::string& damaged) {
            directory.write(name, damaged);
            const auto told = directory.load();
            ++looks;
            if (told == "step 7") return true;  // what was damaged is not needed for the values
            ++refused;
            // Each refusal names the file, or what it is.
            return told.find(file) != std::string::npos || told.find("manifest") != std::string::npos;
        };
        for (std::size_t at = 0; at < whole.size(); ++at) {
            if (!worth_a_look(whole, at)) continue;
            INFO(name << ", byte " << at);
            auto flipped = whole;
            flipped[at] = static_cast<char>(flipped[at] ^ 1 << at % 8);
            CHECK(look(flipped));
            const auto before = refused;
            CHECK(look(whole.substr(0, at)));
            CHECK(refused == before + 1);
        }
        directory.write(name, whole);
        CHECK(directory.load() == "step 7");
    }
    CHECK(refused > looks / 2);
}

TEST_CASE("a hostile manifest is passed over for the checkpoint before it, and left for a person to look at") {
    Directory directory;
    for (const auto& entry : fs::directory_iterator(CORPUS_FOLDER "/fuzz_manifest")) {
        INFO(entry.path().filename());
        directory.write("step_00000009/" + rank_file, contents_of(golden + "/step_00000007/" + rank_file));
        const auto hostile = with_checksum(contents_of(entry.path()));
        directory.write("step_00000009/" + manifest, hostile);
        CHECK(directory.load() == "step 7");
        CHECK_THAT(directory.skipped(), Catch::Contains("step_00000009: "));
        CHECK(contents_of(directory.path_of("step_00000009/" + manifest)) == hostile);
    }
}

TEST_CASE("a draft with a hostile rank file does not become a checkpoint") {
    Directory directory;
    for (const auto& entry : fs::directory_iterator(CORPUS_FOLDER "/fuzz_safetensors")) {
        INFO(entry.path().filename());
        directory.write("step_00000009.tmp-0-feed/" + rank_file, contents_of(entry.path()));
        CHECK(directory.load() == "step 7");
        CHECK(!fs::exists(directory.path_of("step_00000009")));
        CHECK(directory.skipped().empty());
    }
}
