// Log files with their index: what is written, and what a reader makes of it.
#include "agent/output/log_reader.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "agent/output/log_files.h"
#include "agent/output/log_merge.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

const LogOwner rank_35{.round = 7, .rank = 35, .host = "gpu07 of rack 3"};

void write_file(const std::string& path, std::string_view text) {
    std::ofstream(path, std::ios::app) << text;
}

std::string line_of(LogReader& reader) {
    LogLine line;
    const auto more = reader.next(line);
    REQUIRE(more.has_value());
    if (!*more) return "(end)";
    return std::to_string(line.owner->round) + "/" + std::to_string(line.owner->rank) + " " +
           std::to_string(line.time_ns) + (line.is_bar ? " bar " : " ") + line.text;
}

}  // namespace

TEST_CASE("a mark is a line, and a line that is damaged is none") {
    const LogMark begins{.offset = 81920, .begin = 81963, .time_ns = 1764126000123456789, .owner = rank_35};
    CHECK(to_line(begins) == "round 7 rank 35 at 1764126000123456789 from 81920 to 81963 on gpu07 of rack 3\n");
    const LogMark goes_on{.offset = 81963, .begin = 81963, .time_ns = 1764126000124001122, .owner = {}};
    CHECK(to_line(goes_on) == "at 1764126000124001122 from 81963\n");
    for (const auto& mark : {begins, goes_on}) {
        auto line = to_line(mark);
        line.pop_back();
        CHECK(to_mark(line) == mark);
    }
    for (const auto* damaged : {"", "at", "at x from 3", "at 5 from", "at 5 from 3 to 4", "round 7", "at 5",
                                "round 7 rank 1 at 5 from 9 to 8 on a", "round 7 rank 1 at 5 from 9 to 10",
                                "round 7 rank -1 at 5 from 9 to 10 on a", "at 99999999999999999999 from 3"}) {
        CAPTURE(damaged);
        CHECK_FALSE(to_mark(damaged));
    }
    CHECK(log_index_path("/a.b/3/stdout.log") == "/a.b/3/.stdout.times");
    CHECK(log_index_path("stderr") == ".stderr.times");
}

TEST_CASE("a heading is no line, whenever a reader looks") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    constexpr std::uint64_t rounds = 3000;
    LogFiles files;
    int error_number = 0;
    const auto file = files.open(path, "--- round 0 ---", rank_35, error_number);
    REQUIRE(file);
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    std::jthread writer([&] {
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            file->begin_section("--- round " + std::to_string(round) + " ---", LogOwner{.round = round, .host = "h"});
            file->append(std::to_string(round) + "\n");
        }
    });
    std::uint64_t seen = 0;
    const auto late = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (seen < rounds && std::chrono::steady_clock::now() < late) {
        LogLine line;
        const auto more = reader->next(line);
        REQUIRE(more.has_value());
        if (!*more) continue;
        REQUIRE(line.text == std::to_string(++seen));
        REQUIRE(line.owner->round == seen);
    }
    CHECK(seen == rounds);
}

TEST_CASE("a reader that opens a file before its index is there finds the index later") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    write_file(path, "");
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    CHECK(line_of(*reader) == "(end)");
    LogFiles files;
    int error_number = 0;
    const auto file = files.open(path, "--- round 7 ---", rank_35, error_number);
    REQUIRE(file);
    file->append("one\n");
    LogLine line;
    REQUIRE(*reader->next(line));
    CHECK(line.text == "one");
    CHECK(*line.owner == rank_35);
    CHECK(line.time_ns > 0);
}

TEST_CASE("what is written under a heading is read with its owner and time") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    LogFiles files;
    int error_number = 0;
    {
        const auto file = files.open(path, "--- round 7 ---", rank_35, error_number);
        REQUIRE(file);
        file->append("one\ntwo\nhalf");
    }
    {
        const auto file =
            files.open(path, "--- round 8 ---", LogOwner{.round = 8, .rank = 2, .host = "h"}, error_number);
        file->append("three\n");
    }
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    std::vector<LogLine> lines;
    for (LogLine line; *reader->next(line);) lines.push_back(line);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0].text == "one");
    CHECK(*lines[0].owner == rank_35);
    CHECK(lines[0].time_ns > 1'700'000'000'000'000'000);
    CHECK(lines[0].time_ns == lines[1].time_ns);
    CHECK(lines[2].text == "half");
    CHECK(lines[2].owner->round == 7);
    CHECK(lines[3].text == "three");
    CHECK(lines[3].owner->rank == 2);
    CHECK(lines[3].time_ns >= lines[1].time_ns);
    CHECK(last_round(log_index_path(path)) == 8);
    CHECK(last_round((directory / "none")) == 0);
}

TEST_CASE("what a worker prints that stays for another round is of that one, with the line that it had begun") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    LogFiles files;
    int error_number = 0;
    const auto file = files.open(path, "--- round 7 ---", rank_35, error_number);
    REQUIRE(file);
    file->append("one\nhalf");
    file->change_owner({.round = 8, .rank = 2, .host = "h"});
    file->append(" and half\n");
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    LogLine line;
    REQUIRE(*reader->next(line));
    CHECK(*line.owner == rank_35);
    REQUIRE(*reader->next(line));
    CHECK(line.text == "half and half");
    CHECK(line.owner->round == 8);
    CHECK(line.owner->rank == 2);
    CHECK_FALSE(*reader->next(line));
    CHECK(last_round(log_index_path(path)) == 8);
}

TEST_CASE("an owner whose mark comes behind what was read counts for what follows") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log"), index = log_index_path(path);
    write_file(path, "heading\na\nb\n");
    write_file(index, "round 1 rank 4 at 100 from 0 to 8 on h\n");
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    CHECK(line_of(*reader) == "1/4 100 a");
    CHECK(line_of(*reader) == "1/4 100 b");
    CHECK(line_of(*reader) == "(end)");
    write_file(index, "round 2 rank 4 at 200 from 10 to 10 on h\n");
    CHECK(line_of(*reader) == "(end)");
    write_file(path, "c\n");
    CHECK(line_of(*reader) == "2/4 100 c");
}

TEST_CASE("a reader goes on with a file that grows, and passes over what is older") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stderr.log"), index = log_index_path(path);
    write_file(path, "heading\na\nb\n10%\r20%\rhal");
    write_file(index, "round 1 rank 4 at 100 from 0 to 8 on h\nat 200 from 10\nnonsense\nat 300 fr");
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    SECTION("all of it") {
        CHECK(line_of(*reader) == "1/4 100 a");
        CHECK(line_of(*reader) == "1/4 200 b");
        CHECK(line_of(*reader) == "1/4 200 bar 10%");
        CHECK(line_of(*reader) == "1/4 200 bar 20%");
        CHECK(line_of(*reader) == "(end)");
        CHECK(line_of(*reader) == "(end)");
        write_file(index, "om 23\n");
        write_file(path, "f\nlast");
        CHECK(line_of(*reader) == "1/4 300 half");
        CHECK(line_of(*reader) == "(end)");
        LogLine rest;
        REQUIRE(reader->take_rest(rest));
        CHECK(rest.text == "last");
        CHECK_FALSE(reader->take_rest(rest));
    }
    SECTION("from a time on") {
        reader->skip_to(150);
        CHECK(line_of(*reader) == "1/4 200 b");
    }
    SECTION("from a time on that has not come") {
        reader->skip_to(1000);
        CHECK(line_of(*reader) == "1/4 200 b");  // as near as the index tells: its chunk may be newer
    }
}

TEST_CASE("a file that was cut is read from its beginning") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    write_file(path, "heading\na\nb\nhal");
    write_file(log_index_path(path), "round 1 rank 4 at 100 from 0 to 8 on h\nat 200 from 10\nat 300 from 500\n");
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    LogLine line;
    SECTION("while it is read") {
        for (const std::string text : {"a", "b"}) {
            REQUIRE(*reader->next(line));
            CHECK(line.text == text);
        }
        CHECK_FALSE(*reader->next(line));
        CHECK_FALSE(reader->was_cut());
    }
    SECTION("before a reader resumes") {
        reader->resume_at(14);
    }
    std::filesystem::resize_file(path, 0);
    CHECK_FALSE(*reader->next(line));
    for (const std::string text : {"c", "d"}) {
        write_file(path, text + "\n");
        REQUIRE(*reader->next(line));
        CHECK(line.text == text);
        CHECK(line.owner->rank == 4);
        CHECK(line.time_ns > 1'700'000'000'000'000'000);
        CHECK_FALSE(*reader->next(line));
    }
    CHECK(line.end == 4);
    CHECK(line.cut_bytes == 0);
    CHECK(reader->was_cut());
}

TEST_CASE("an index that is newer than what a shared file system tells of the file is no cut") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    write_file(path, "heading\na\n");
    // By far later than the file's last write that can be seen.
    write_file(log_index_path(path),
               "round 1 rank 4 at 100 from 0 to 8 on h\n"
               "round 2 rank 5 at 5000000000000000000 from 10 to 18 on h\n");
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    SECTION("all of it") {
        CHECK(line_of(*reader) == "1/4 100 a");
    }
    SECTION("from a time on") {
        reader->skip_to(200);
    }
    CHECK(line_of(*reader) == "(end)");
    write_file(path, "heading\nb\n");
    CHECK(line_of(*reader) == "2/5 5000000000000000000 b");
    CHECK_FALSE(reader->was_cut());
}

TEST_CASE("a file without an index is of the owner that was given") {
    const test::ScratchFolder directory;
    write_file((directory / "stdout.log"), "x\n");
    auto reader = LogReader::open((directory / "stdout.log"), {.round = 0, .rank = 5, .host = ""});
    REQUIRE(reader.has_value());
    CHECK(line_of(*reader) == "0/5 0 x");
    const auto missing = LogReader::open((directory / "nothing.log"), {});
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().context.find("nothing.log") != std::string::npos);
}

TEST_CASE("half a line that was shown at its worker's end is followed by no empty line") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    LogFiles files;
    int error_number = 0;
    {
        const auto file = files.open(path, "--- round 7 ---", rank_35, error_number);
        REQUIRE(file);
        file->append("one\nhalf");
    }
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    LogLine line;
    REQUIRE(*reader->next(line));
    REQUIRE_FALSE(*reader->next(line));
    REQUIRE(reader->take_rest(line));
    auto resumed = LogReader::open(path, {});
    REQUIRE(resumed.has_value());
    resumed->resume_at(line.end);
    CHECK(line_of(*resumed) == "(end)");
    const auto file = files.open(path, "--- round 8 ---", rank_35, error_number);
    REQUIRE(file);
    file->append("\ntwo\n");
    for (const std::string text : {"", "two"}) {
        REQUIRE(*resumed->next(line));
        CHECK(line.text == text);
    }
    CHECK_FALSE(*resumed->next(line));
}

TEST_CASE("half a line of a worker that runs on waits for its rest") {
    const test::ScratchFolder directory;
    for (const std::string rank : {"0", "1"}) {
        std::filesystem::create_directories(directory / rank);
        write_file((directory / rank) + "/stdout.log", "one\nhalf");
    }
    const auto read = [&](LogMerge& merge) {
        std::string lines;
        const auto sink = [&](std::size_t, const LogLine& line) {
            lines += std::to_string(line.owner->rank) + " " + line.text + ";";
            return true;
        };
        REQUIRE(merge.find().has_value());
        REQUIRE(merge.read(sink).has_value());
        merge.finish(sink);
        return lines;
    };
    LogMerge merge(LogSelection{.folders = {directory.string()}});
    merge.run_on({(directory / "1") + "/stdout.log"});
    CHECK(read(merge) == "0 one;1 one;0 half;");
    write_file((directory / "1") + "/stdout.log", " a line\n");
    CHECK(read(merge) == "1 half a line;");
}

TEST_CASE("a reader that resumes behind any line gets the same rest") {
    const test::ScratchFolder directory;
    const auto path = (directory / "stdout.log");
    LogFiles files;
    int error_number = 0;
    for (const std::uint64_t round : {7, 8, 9}) {
        const auto file =
            files.open(path, "--- round ---", LogOwner{.round = round, .rank = 2, .host = "h"}, error_number);
        REQUIRE(file);
        file->append("one\ntwo\r" + std::string(40'000, 'x') + "\n");
        file->append("three\r\nlast\n");
    }
    const auto read = [&](std::uint64_t from) {
        auto reader = LogReader::open(path, {});
        REQUIRE(reader.has_value());
        if (from > 0) reader->resume_at(from);
        std::vector<LogLine> lines;
        for (LogLine line; *reader->next(line);) lines.push_back(line);
        return lines;
    };
    const auto whole = read(0);
    REQUIRE(whole.size() == 15);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        CAPTURE(i);
        const auto rest = read(whole[i].end);
        REQUIRE(rest.size() == whole.size() - i - 1);
        for (std::size_t j = 0; j < rest.size(); ++j) {
            CHECK(rest[j].text == whole[i + 1 + j].text);
            CHECK(*rest[j].owner == *whole[i + 1 + j].owner);
            CHECK(rest[j].end == whole[i + 1 + j].end);
        }
    }
}
