// A place in the index of a long log file.
#include "agent/output/log_index_search.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "agent/output/log_files.h"
#include "agent/output/log_reader.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// Of this process, by read and pread.
std::uint64_t bytes_read() {
    std::ifstream counters("/proc/self/io");
    std::string name;
    std::uint64_t count = 0;
    counters >> name >> count;
    REQUIRE(name == "rchar:");
    return count;
}

/// A mark each 10 ns, for a line of ten bytes; a round begins with mark 0, 70'000 and 140'000, and each thousandth mark
/// names the owner.
std::string long_index(int marks) {
    std::string text;
    for (int i = 0; i < marks; ++i) {
        if (i == 150'000) text += "at 12 fro\n" + std::string(9000, 'x') + "\n";
        const auto at = cat("at ", 1'000'000 + 10 * i, " from ", 10 * i);
        text += i % 1000 == 0 ? cat("round ", i / 70'000, " rank 5 ", at, " to ", 10 * i, " on h\n") : at + "\n";
    }
    return text;
}

struct LongLog {
    explicit LongLog(int marks) {
        std::ofstream(path) << std::string(10 * static_cast<std::size_t>(marks), '\n');
        std::ofstream(log_index_path(path)) << long_index(marks);
    }
    test::ScratchFolder folder{};
    std::string path = folder / "stdout.log";
};

}  // namespace

TEST_CASE(
    "a reader that skips to a time, or resumes, has the same line and owner as one that reads all, and reads little") {
    constexpr int marks = 200'000;
    const LongLog log(marks);
    const bool by_time = GENERATE(true, false);
    for (const std::int64_t mark :
         {0, 1, 3, 69'999, 70'000, 70'001, 139'999, 140'000, 149'998, 150'000, 150'001, 199'999}) {
        for (const std::int64_t shift : {-1, 0, 1}) {
            auto reader = LogReader::open(log.path, {});
            REQUIRE(reader.has_value());
            const auto before = bytes_read();
            // Behind the last mark nothing tells a time. Lines begin at each byte.
            if (by_time)
                reader->skip_to(1'000'000 + 10 * mark + shift);
            else
                reader->resume_at(static_cast<std::uint64_t>(std::max<std::int64_t>(10 * mark + shift, 0)));
            const auto wanted = by_time       ? std::min<std::int64_t>(mark + (shift > 0), marks - 1)
                                : shift == -1 ? std::max<std::int64_t>(mark - 1, 0)
                                              : mark;
            LogLine line;
            CAPTURE(by_time, mark, shift);
            REQUIRE(*reader->next(line));
            CHECK(line.time_ns == 1'000'000 + 10 * wanted);
            CHECK(line.owner->round == static_cast<std::uint64_t>(wanted / 70'000));
            CHECK(line.owner->rank == 5);
            CHECK(bytes_read() - before < 1'000'000);  // of 5 MB
        }
    }
    CHECK(last_round(log_index_path(log.path)) == 2);
}

TEST_CASE("a reader that skips to a round reads little of the rounds before") {
    const LongLog log(200'000);
    for (const std::uint64_t round : {0, 1, 2, 3}) {
        auto reader = LogReader::open(log.path, {});
        REQUIRE(reader.has_value());
        const auto before = bytes_read();
        reader->skip_to_round(round);
        LogLine line;
        CAPTURE(round);
        REQUIRE(*reader->next(line));
        // There is no round 3: what comes is of the last mark, and is left out by who asks.
        CHECK(line.owner->round == std::min<std::uint64_t>(round, 2));
        CHECK(line.time_ns == 1'000'000 + (round < 3 ? 700'000 * static_cast<std::int64_t>(round) : 1'999'990));
        CHECK(bytes_read() - before < 1'000'000);  // of 5 MB
    }
}

TEST_CASE("a reader of the last lines has so many, and reads little of what comes before") {
    const LongLog log(200'000);
    const int count = GENERATE(0, 1, 5, 3'000'000);  // of 2 million
    auto reader = LogReader::open(log.path, {});
    REQUIRE(reader.has_value());
    const auto before = bytes_read();
    reader->skip_to_last(static_cast<std::size_t>(count), {});
    if (count < 10) CHECK(bytes_read() - before < 1'000'000);  // of 7 MB
    LogLine line;
    int got = 0;
    for (; *reader->next(line); ++got) {
    }
    CHECK(got == std::min(count, 2'000'000));
    if (got > 0) CHECK(line.owner->round == 2);
}

TEST_CASE("headings are none of the last lines") {
    const test::ScratchFolder folder;
    const std::string path = folder / "stdout.log";
    LogFiles files;
    int error_number = 0;
    for (const int round : {1, 2, 3, 4}) {
        const auto file = files.open(path, cat("--- round ", round, " ---"), LogOwner{.host = "h"}, error_number);
        REQUIRE(file);
        if (round < 3) file->append(cat("first of ", round, "\nsecond of ", round, '\n'));
    }
    const int count = GENERATE(1, 3, 4, 5);
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    reader->skip_to_last(static_cast<std::size_t>(count), {});
    std::vector<std::string> got;
    for (LogLine line; *reader->next(line);) got.push_back(line.text);
    const std::vector<std::string> all{"first of 1", "second of 1", "first of 2", "second of 2"};
    CHECK(got == std::vector(all.end() - std::min(count, 4), all.end()));
}

TEST_CASE("the last lines are looked for in the last part of a file, with signs of life") {
    const test::ScratchFolder folder;
    const std::string path = folder / "stdout.log";
    std::ofstream(path) << "old\n";
    std::filesystem::resize_file(path, 200 << 20);  // a hole: one long line
    std::ofstream(path, std::ios::app) << "\nnew\n";
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    int alive = 0;
    const auto before = bytes_read();
    reader->skip_to_last(1'000'000'000'000, [&] { ++alive; });
    CHECK(bytes_read() - before < 2 * LogReader::last_bytes_max);
    CHECK(alive > 1000);
    LogLine line;
    REQUIRE(*reader->next(line));
    CHECK(line.text.front() == '\0');
    while (*reader->next(line)) {
    }
    CHECK(line.text == "new");
}

TEST_CASE("an owner's line that was cut at the end of an index is passed over") {
    const LongLog log(140'001);  // the last line begins round 2
    const auto whole = long_index(140'001);
    const auto last_owner = whole.rfind("round ");
    const auto size = whole.find('\n', last_owner) - last_owner;
    for (auto kept = size; kept > 0; --kept) {  // a file that grows again has zeroes there
        std::filesystem::resize_file(log_index_path(log.path), last_owner + kept);
        for (const bool by_time : {true, false}) {
            auto reader = LogReader::open(log.path, {});
            REQUIRE(reader.has_value());
            by_time ? reader->skip_to(3'000'000) : reader->skip_to_last(5, {});
            LogLine line;
            CAPTURE(kept, by_time);
            REQUIRE(*reader->next(line));
            CHECK(line.time_ns == 1'000'000 + 10 * 139'999);
            CHECK(line.owner->round == 1);
        }
        CHECK(last_round(log_index_path(log.path)) == 1);
    }
}

TEST_CASE("a long index names its owner again, and lines keep one owner") {
    const test::ScratchFolder folder;
    const std::string path = folder / "stdout.log";
    LogFiles files;
    int error_number = 0;
    const LogOwner owner{.round = 3, .rank = 9, .host = "h"};
    const auto file = files.open(path, "--- round 3 ---", owner, error_number);
    REQUIRE(file);
    const auto chunk = std::string((64 << 10) - 1, 'x') + "\n";
    for (int i = 0; i < 1100; ++i) file->append(chunk);
    std::ifstream index(log_index_path(path));
    int named = 0;
    for (std::string line; std::getline(index, line);) named += line.starts_with("round 3 rank 9 at ");
    CHECK(named == 2);
    auto reader = LogReader::open(path, {});
    REQUIRE(reader.has_value());
    LogLine line;
    REQUIRE(*reader->next(line));
    const auto first = line.owner;
    while (*reader->next(line)) {
    }
    CHECK(line.owner == first);
    CHECK(*first == owner);
}

TEST_CASE("others read neither a worker's log nor its index, and a link in their places is not followed") {
    const test::ScratchFolder folder;
    const auto path = folder / "attempt_0/0/stdout.log";
    const auto victim = folder / "victim";
    std::ofstream(victim) << "old\n";
    std::filesystem::create_directories(folder / "attempt_0/0");
    const auto open_log = [&] {
        LogFiles files;
        int error_number = 0;
        const LogOwner owner{.round = 0, .rank = 0, .host = "h"};
        if (const auto file = files.open(path, "--- round 0 ---", owner, error_number)) file->append("a line\n");
        return error_number;
    };
    SECTION("new files") {
        const auto umask_before = ::umask(0);
        CHECK(open_log() == 0);
        ::umask(umask_before);
        using enum std::filesystem::perms;
        CHECK(std::filesystem::status(path).permissions() == (owner_read | owner_write | group_read));
        CHECK(std::filesystem::status(log_index_path(path)).permissions() == (owner_read | owner_write | group_read));
    }
    SECTION("a link in the log's place") {
        std::filesystem::create_symlink(victim, path);
        CHECK(open_log() == ELOOP);
    }
    SECTION("a link in the index's place") {
        std::filesystem::create_symlink(victim, log_index_path(path));
        CHECK(open_log() == 0);
        CHECK(read_file(path).ends_with("a line\n"));
    }
    CHECK(read_file(victim) == "old\n");
}
