// Each file under stories/ is a story with the daemon's answers; telling it again must give the same file. With
// MUSTER_REWRITE_TRANSCRIPTS=1 the files are written anew, and a person reads the difference.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace {

std::string read(const std::filesystem::path& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
}

/// The story alone: the daemon's answers are indented.
std::string without_answers(const std::string& transcript) {
    std::string story;
    for (const auto line : muster::split(transcript, '\n'))
        if (!line.starts_with("    ")) story += muster::cat(line, "\n");
    return story;
}

}  // namespace

TEST_CASE("each story is answered as its transcript says") {
    const bool rewrite = std::getenv("MUSTER_REWRITE_TRANSCRIPTS") != nullptr;
    std::size_t story_count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(MUSTER_STORIES)) {
        if (entry.path().extension() != ".txt") continue;
        ++story_count;
        const auto expected = read(entry.path());
        const auto told = muster::test::Story().tell(without_answers(expected));
        INFO(entry.path().string());
        if (rewrite)
            std::ofstream(entry.path()) << told;
        else
            CHECK(told == expected);
    }
    CHECK(story_count >= 10);
}
