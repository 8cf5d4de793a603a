#include "agent/output/line_splitter.h"

#include "tests/support/catch.h"

using muster::agent::LineSplitter;

namespace {

using Lines = std::vector<std::string>;

/// The lines of `chunks`, and what is left over as a last one in brackets.
Lines split_chunks(const Lines& chunks, std::size_t line_max = 1 << 20) {
    LineSplitter splitter(line_max);
    Lines lines;
    for (const auto& chunk : chunks) {
        splitter.add(chunk);
        for (std::string_view line; splitter.next(line);) lines.emplace_back(line);
    }
    if (splitter.holds_partial()) lines.push_back("[" + splitter.take_partial() + "]");
    return lines;
}

}  // namespace

TEST_CASE("lines come out whole, without their ends") {
    CHECK(split_chunks({"one\ntwo\n"}) == Lines{"one", "two"});
    CHECK(split_chunks({"\n\n"}) == Lines{"", ""});
    CHECK(split_chunks({"one\ntw"}) == Lines{"one", "[tw]"});
    CHECK(split_chunks({}).empty());
}

TEST_CASE("wherever the chunks end, the lines are the same") {
    const std::string text = "first\nsecond\r\nthird\rfourth\n\n\r\r\nlast\r";
    const auto whole = split_chunks({text});
    CHECK(whole == Lines{"first", "second", "third", "fourth", "", "last"});
    for (std::size_t a = 0; a <= text.size(); ++a) {
        for (std::size_t b = a; b <= text.size(); ++b) {
            CHECK(split_chunks({text.substr(0, a), text.substr(a, b - a), text.substr(b)}) == whole);
        }
    }
}

TEST_CASE("each state of a progress bar is a line, and its leading return is not") {
    CHECK(split_chunks({"\r 0%|", "\r10%|", "\r20%|\n"}) == Lines{" 0%|", "10%|", "20%|"});
}

TEST_CASE("a line that is too long comes out in pieces, and nothing of it is lost") {
    CHECK(split_chunks({"abcdefgh\nij\n"}, 3) == Lines{"abc", "def", "gh", "ij"});
    CHECK(split_chunks({"ab", "cd", "ef", "g\n"}, 3) == Lines{"abc", "def", "g"});
    CHECK(split_chunks({"abc\ndef\n"}, 3) == Lines{"abc", "def"});
    CHECK(split_chunks({"abcdefg\rh\n"}, 3) == Lines{"abc", "def", "g", "h"});
}

TEST_CASE("a partial line that was taken is a line of its own") {
    LineSplitter splitter;
    std::string_view line;
    splitter.add("loading... ");
    CHECK_FALSE(splitter.next(line));
    CHECK(splitter.take_partial() == "loading... ");
    splitter.add("done\n");
    REQUIRE(splitter.next(line));
    CHECK(line == "done");
    CHECK_FALSE(splitter.holds_partial());
}
