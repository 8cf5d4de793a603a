#include "launcher/commands/log_view.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/commands/log_wish.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::launcher;

namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr std::int64_t start = 1'764'000'000 * second;

/// A folder of logs: each write is a chunk with its time.
class Logs {
  public:
    Logs() : folder_(scratch_.string()) {}
    void begin(std::uint32_t rank, std::uint64_t round, const std::string& stream = "stdout") {
        add(rank, stream, "heading\n", "round " + std::to_string(round) + " rank " + std::to_string(rank) + " at ",
            " to " + std::to_string(size(rank, stream) + 8) + " on h");
    }
    void write(std::uint32_t rank, std::int64_t at_ms, const std::string& text, const std::string& stream = "stdout") {
        now_ns_ = start + at_ms * 1'000'000;
        add(rank, stream, text, "at ", "");
    }
    std::string path(std::uint32_t rank, const std::string& name) const {
        return (folder_ / "j_x" / "attempt_0" / std::to_string(rank) / name).string();
    }
    std::string read(LogRequest request) const {
        request.folders = {folder_.string()};
        LogView view(std::move(request), now_ns_);
        std::string text;
        const auto sink = [&](std::string_view lines) {
            text += lines;
            return true;
        };
        const auto found = view.find();
        if (!found) return found.error().context;
        REQUIRE(view.read(now_ns_, sink).has_value());
        view.finish(sink);
        return text;
    }
    std::string folder() const { return folder_.string(); }

  private:
    std::uint64_t size(std::uint32_t rank, const std::string& stream) const {
        std::error_code none;
        const auto size = std::filesystem::file_size(path(rank, stream + ".log"), none);
        return none ? 0 : size;
    }
    void add(std::uint32_t rank, const std::string& stream, const std::string& text, const std::string& before,
             const std::string& after) {
        std::filesystem::create_directories(std::filesystem::path(path(rank, "x")).parent_path());
        const auto offset = size(rank, stream);
        std::ofstream(path(rank, "." + stream + ".times"), std::ios::app)
            << before << now_ns_ << " from " << offset << after << '\n';
        std::ofstream(path(rank, stream + ".log"), std::ios::app) << text;
    }

    test::ScratchFolder scratch_;
    std::filesystem::path folder_;
    std::int64_t now_ns_ = start;
};

LogRequest every_line() {
    LogRequest request;
    request.fold = false;
    return request;
}

}  // namespace

TEST_CASE("lines of many files come in order of time, and a chunk stays together") {
    Logs logs;
    for (const std::uint32_t rank : {0, 1, 12}) logs.begin(rank, 3);
    logs.begin(1, 3, "stderr");
    logs.write(12, 10, "b1\nb2\n");
    logs.write(0, 5, "a\n");
    logs.write(1, 20, "Traceback\n  one\n", "stderr");
    logs.write(0, 20, "between?\n");
    logs.write(1, 15, "c\n");
    logs.write(12, 30, "half");
    logs.write(12, 40, " and half\nrest");
    const auto text = logs.read(every_line());
    CHECK(
        (text == "[0]: a\n[12]: b1\n[12]: b2\n[1]: c\n[1]: Traceback\n[1]:   one\n[0]: between?\n[12]: half and half\n"
                 "[12]: rest\n" ||
         text == "[0]: a\n[12]: b1\n[12]: b2\n[1]: c\n[0]: between?\n[1]: Traceback\n[1]:   one\n[12]: half and half\n"
                 "[12]: rest\n"));
}

TEST_CASE("what all ranks print is two lines, whatever their files' order") {
    Logs logs;
    for (std::uint32_t rank = 0; rank < 12; ++rank) {
        logs.begin(rank, 0);
        logs.write(rank, 100 - rank, "loading\nmine is " + std::to_string(rank) + "\n");
    }
    const auto text = logs.read({});
    CHECK(text.starts_with("[11]: loading\n[11]: mine is 11\n[10]: mine is 10\n"));
    CHECK(text.find("[same from all 12 ranks] loading\n") != std::string::npos);
    CHECK(std::ranges::count(text, '\n') == 14);
}

namespace {

/// A view that follows the files.
class Following {
  public:
    Following(const Logs& logs, LogRequest request) : view_(follow(logs, std::move(request)), start) {
        REQUIRE(view_.find().has_value());
    }
    /// What it shows at that time.
    std::string read(std::int64_t at_ms) {
        std::string text;
        const auto sink = [&](std::string_view lines) {
            text += lines;
            return true;
        };
        REQUIRE(view_.read(start + at_ms * 1'000'000, sink).has_value());
        return text;
    }

  private:
    static LogRequest follow(const Logs& logs, LogRequest request) {
        request.folders = {logs.folder()};
        request.follow = true;
        return request;
    }
    LogView view_;
};

}  // namespace

TEST_CASE("what all ranks print is two lines, also where some print it later than others") {
    Logs logs;
    for (std::uint32_t rank = 0; rank < 12; ++rank) logs.begin(rank, 0);
    Following view(logs, {});
    std::string text;
    for (std::uint32_t rank = 0; rank < 12; ++rank) {
        logs.write(rank, 10 * rank, "loading\n");
        if (rank % 4 == 3) text += view.read(10 * rank);
    }
    text += view.read(500);
    CHECK(text == "[0]: loading\n  [same from all 12 ranks]\n");
}

TEST_CASE("a line is in its place though it came into its file when that had just been read") {
    Logs logs;
    for (std::uint32_t rank = 0; rank < 3; ++rank) logs.begin(rank, 0);
    Following view(logs, every_line());
    logs.write(1, 50, "b\nb2\n");
    logs.write(2, 3'600'000, "of a clock that is wrong\n");
    CHECK(view.read(60).empty());
    logs.write(0, 40, "a\n");
    logs.write(1, 155, "c\n");
    CHECK(view.read(160) == "[0]: a\n[1]: b\n[1]: b2\n[2]: of a clock that is wrong\n");
    CHECK(view.read(260) == "[1]: c\n");
}

TEST_CASE("of a clock that is ahead one line waits for the next read, and not each of them") {
    Logs logs;
    logs.begin(0, 0);
    Following view(logs, every_line());
    std::string all;
    for (int i = 0; i < 20; ++i) {
        logs.write(0, 3'600'000 + i, std::to_string(i) + "\n");
        all += "[0]: " + std::to_string(i) + "\n";
    }
    CHECK(view.read(60).empty());
    CHECK(view.read(160) == all);
}

TEST_CASE("a file that was cut is read no slower than it is written") {
    Logs logs;
    logs.begin(0, 0);
    logs.write(0, 1, "before\n");
    Following view(logs, every_line());
    const auto path = logs.path(0, "stdout.log");
    const auto written_at = [&](std::int64_t at_ms) {
        const std::chrono::sys_time<std::chrono::nanoseconds> time(std::chrono::nanoseconds(start + at_ms * 1'000'000));
        std::filesystem::last_write_time(path, std::chrono::file_clock::from_sys(time));
    };
    CHECK(view.read(200) == "[0]: before\n");
    std::filesystem::resize_file(path, 0);
    written_at(300);
    CHECK(view.read(300).empty());
    // A hundred of the reader's chunks.
    std::string text;
    for (int i = 0; i < 16'384; ++i) text += std::string(99, 'x') + "\n";
    std::ofstream(path, std::ios::app) << text;
    written_at(1000);
    CHECK(view.read(1000).empty());
    written_at(1110);
    CHECK(std::ranges::count(view.read(1110), '\n') == 16'384);
}

TEST_CASE("ranks of a world that has shrunk have nothing more to print") {
    Logs logs;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        logs.begin(rank, 0);
        logs.write(rank, 0, "old\n");
    }
    for (const std::uint32_t rank : {0, 1}) logs.begin(rank, 1);
    for (const std::uint32_t rank : {0, 1}) logs.write(rank, 60'000, "loading\n");
    LogRequest request;
    request.since = 30s;
    CHECK(logs.read(request) == "[0]: loading\n  [same from all 2 ranks]\n");
}

TEST_CASE("a traceback stays whole though its last lines wait for the next read") {
    Logs logs;
    for (const std::uint32_t rank : {0, 1}) logs.begin(rank, 0);
    Following view(logs, {});
    for (const std::uint32_t rank : {0, 1}) logs.write(rank, 0, "Traceback (most recent call last):\n");
    for (const std::uint32_t rank : {0, 1}) logs.write(rank, 150, "  File \"a.py\", line 1\nValueError: no\n");
    CHECK(view.read(240).empty());
    CHECK(view.read(340) ==
          "[0]: Traceback (most recent call last):\n[0]:   File \"a.py\", line 1\n[0]: ValueError: no\n"
          "  [same from all 2 ranks]\n");
}

TEST_CASE("only what is asked for is shown") {
    Logs logs;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        logs.begin(rank, 0);
        logs.begin(rank, 0, "stderr");
        logs.write(rank, 0, "old " + std::to_string(rank) + "\n");
        logs.begin(rank, 4);
        logs.write(rank, 60'000, "new " + std::to_string(rank) + "\n");
        logs.write(rank, 60'000, "loss\n", "stderr");
    }
    auto request = every_line();
    SECTION("ranks") {
        request.ranks = {1};
        CHECK(logs.read(request) == "[1]: old 1\n[1]: loss\n[1]: new 1\n");
    }
    SECTION("a stream") {
        request.out = false;
        CHECK(logs.read(request) == "[0]: loss\n[1]: loss\n[2]: loss\n");
    }
    SECTION("the last round") {
        request.last_round = true;
        CHECK(logs.read(request) == "[0]: new 0\n[1]: new 1\n[2]: new 2\n");
    }
    SECTION("a round") {
        request.round = 0;
        request.err = false;
        CHECK(logs.read(request) == "[0]: old 0\n[1]: old 1\n[2]: old 2\n");
    }
    SECTION("the last lines") {
        request.err = false;
        request.last = 1;
        CHECK(logs.read(request) == "[0]: new 0\n[1]: new 1\n[2]: new 2\n");
    }
    SECTION("the last lines of those that match") {
        request.last = 1;
        request.include.emplace_back("old");
        CHECK(logs.read(request) == "[0]: old 0\n[1]: old 1\n[2]: old 2\n");
    }
    SECTION("the last seconds") {
        request.since = 30s;
        request.err = false;
        CHECK(logs.read(request) == "[0]: new 0\n[1]: new 1\n[2]: new 2\n");
    }
    SECTION("failed workers, in the rounds in which they failed") {
        request.failed = read_failed_ranks(
                             R"({"specversion":"1.0","type":"muster.worker.failed.v1","data":{"round":0,"rank":2}}
{"specversion":"1.0","type":"muster.round.ended.v1","data":{"round":0,"rank":1}}
{"specversion":"1.0","type":"muster.worker.failed.v1","data":{"round":4,"rank":1}}
{"specversion":"1.0","type":"muster.worker.fai)")
                             .value();
        request.err = false;
        CHECK(logs.read(request) == "[2]: old 2\n[1]: new 1\n");
    }
    SECTION("lines that match") {
        request.include.emplace_back("^new");
        request.include.emplace_back("^old");
        request.exclude.emplace_back("[02]");
        CHECK(logs.read(request) == "[1]: old 1\n[1]: new 1\n");
    }
}

TEST_CASE("the failed workers of a report are its first one and those of its groups") {
    using Ranks = std::set<std::pair<std::uint64_t, std::uint32_t>>;
    const auto ranks_of = [](std::string_view text) { return read_failed_ranks(text).value(); };
    CHECK(ranks_of(R"({"outcome":"failed","round":2,"first":{"rank":5},"groups":[{"ranks":"0-1,7 and 3 more"}]})") ==
          Ranks{{2, 0}, {2, 1}, {2, 5}, {2, 7}});
    CHECK(ranks_of(R"({"outcome":"failed","round":2,"first":{"kind":"node_lost"},"groups":[1,{"ranks":3}]})").empty());
    CHECK(ranks_of(R"({"outcome":"succeeded"})").empty());
    CHECK(ranks_of(R"({"outcome":"failed","round":2,"groups":[{"ranks":"x,1-,9999999,0-99999999999"}]})").empty());
    for (const char* text : {"", "{", "[]", "{}", "rank 3 failed\n", "{\"type\":1}"})
        CHECK(read_failed_ranks(text).error().code == Errc::invalid_argument);
}

TEST_CASE("files without an index come one after the other, of the rank that their folder is named after") {
    Logs logs;
    std::filesystem::create_directories(logs.path(7, ""));
    std::ofstream(logs.path(7, "stdout.log")) << "x\ny\n";
    logs.begin(1, 0);
    logs.write(1, 0, "z\n");
    CHECK(logs.read(every_line()) == "[7]: x\n[7]: y\n[1]: z\n");
}

TEST_CASE("a file that may not be read is named") {
    Logs logs;
    std::filesystem::create_directories(logs.path(0, "stdout.log"));
    CHECK(logs.read({}).find("stdout.log") != std::string::npos);
}

TEST_CASE("a pattern is looked for in the beginning of a long line") {
    Logs logs;
    logs.begin(0, 0);
    logs.write(0, 1, "begin " + std::string(1'000'000, 'x') + " end\n");
    auto request = every_line();
    request.include.emplace_back("begin (x|y)*");
    CHECK(logs.read(request).size() > 1'000'000);
    request.include.clear();
    request.include.emplace_back("end$");
    CHECK(logs.read(request).empty());
    request.include.emplace_back("x$");  // where the part that is searched ends
    CHECK(logs.read(request).empty());
    request.include.emplace_back("^b.{8191}");
    CHECK(logs.read(request).size() > 1'000'000);
}

TEST_CASE("the lines of some nodes alone") {
    Logs logs;
    logs.begin(0, 0);
    logs.write(0, 1, "a\n");
    auto request = every_line();
    request.nodes = {"g", "h"};
    CHECK(logs.read(request) == "[0]: a\n");
    request.nodes = {"g"};
    CHECK(logs.read(request).empty());
    CHECK(is_of_nodes("gpu07.example.org", {"gpu07"}));
    CHECK(is_of_nodes("gpu07.example.org", {"gpu07.example.org"}));
    CHECK_FALSE(is_of_nodes("gpu071", {"gpu07"}));
    CHECK_FALSE(is_of_nodes("gpu07", {"gpu07.example.org"}));
    CHECK(is_of_nodes("gpu07", {}));
}

// A node of the list that the job does not have is told, so nothing else may be in it.
TEST_CASE("the value of --node is a list of names") {
    const auto wish = read_log_wish({"--job=j", "--node=gpu01,gpu02"});
    REQUIRE(wish.has_value());
    const auto& nodes = wish->request.nodes;
    CHECK(std::vector<std::string>(nodes.begin(), nodes.end()) == std::vector<std::string>{"gpu01", "gpu02"});
}

TEST_CASE("lines are folded unless --all or --times says otherwise, and --fold overrides --all") {
    const auto folds = [](std::vector<std::string> words) {
        words.emplace_back("j");
        return read_log_wish(words).value().request.fold;
    };
    CHECK((folds({}) && folds({"--fold"}) && folds({"--all", "--fold"}) && folds({"--fold", "--all"})));
    CHECK_FALSE((folds({"--all"}) || folds({"--times"}) || folds({"--times", "--fold"})));
}

// As the value of an unset shell variable is: "$JOB" must not mean every job.
TEST_CASE("an option of a command must have a value") {
    for (const auto& words :
         std::vector<std::vector<std::string>>{{"--job="}, {"--job", ""}, {"j", "--rdzv-endpoint="}}) {
        const auto wish = read_log_wish(words);
        REQUIRE_FALSE(wish.has_value());
        CHECK(wish.error().context.ends_with(": the value is empty; leave the option out, or give it one"));
    }
    for (const auto& words : std::vector<std::vector<std::string>>{{""}, {"", "-f"}}) {
        const auto wish = read_log_wish(words);
        REQUIRE_FALSE(wish.has_value());
        CHECK(wish.error().context.starts_with("an argument is empty"));
    }
}
