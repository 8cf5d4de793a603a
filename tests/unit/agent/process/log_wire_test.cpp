#include "agent/output/log_wire.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

std::shared_ptr<const LogOwner> owner(std::uint64_t round, std::uint32_t rank, const std::string& host) {
    return std::make_shared<const LogOwner>(LogOwner{.round = round, .rank = rank, .host = host});
}

LogLine line(const std::shared_ptr<const LogOwner>& of, const std::string& text, bool is_bar = false) {
    return {.text = text, .time_ns = 1'764'126'000'123'456'789, .owner = of, .is_bar = is_bar};
}

/// All messages as text, fed in pieces of that size.
std::string read(const std::string& bytes, std::size_t piece) {
    LogWireReader reader;
    std::string all;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
        reader.append(std::string_view(bytes).substr(at, piece));
        for (;;) {
            auto message = reader.next();
            if (!message) return all + "!";
            if (!*message) break;
            if (const auto* sent = std::get_if<SentLine>(&**message))
                all += std::to_string(sent->file) + ":" + std::to_string(sent->line.owner->round) + "/" +
                       std::to_string(sent->line.owner->rank) + "@" + sent->line.owner->host +
                       (sent->line.is_bar ? " bar " : " ") + sent->line.text + ";";
            else if (const auto* clock = std::get_if<LogClock>(&**message))
                all += "clock " + std::to_string(clock->now_ns) + ";";
            else if (const auto* reached = std::get_if<LogReached>(&**message))
                all += "reached " + std::to_string(reached->time_ns) + ";";
            else if (std::holds_alternative<LogAlive>(**message))
                all += "alive;";
            else if (const auto* trouble = std::get_if<LogTrouble>(&**message))
                all += "trouble " + trouble->text + ";";
            else
                all += std::holds_alternative<LogRoundOver>(**message) ? "over;" : "end;";
        }
    }
    return all;
}

std::string all_kinds() {
    std::string bytes = to_wire(LogClock{17});
    LineWriter writer;
    const auto first = owner(0, 35, "gpu 07"), second = owner(1, 36, "gpu07");
    writer.append(bytes, 3, "0/stdout.log", line(first, "one"));
    writer.append(bytes, 3, "0/stdout.log", line(first, ""));
    writer.append(bytes, 4, "1/stdout.log", line(second, "two\nlines", true));
    writer.append(bytes, 3, "0/stdout.log", line(second, "three"));
    return bytes + to_wire(LogReached{-5}) + to_wire(LogAlive{}) + to_wire(LogTrouble{"a\nb"}) +
           to_wire(LogRoundOver{}) + to_wire(LogEnd{});
}

}  // namespace

TEST_CASE("what an agent writes is what a viewer reads, whatever the pieces in which it comes") {
    const std::string expected =
        "clock 17;3:0/35@gpu 07 one;3:0/35@gpu 07 ;4:1/36@gpu07 bar two\nlines;3:1/36@gpu07 three;"
        "reached -5;alive;trouble a b;over;end;";
    const auto bytes = all_kinds();
    for (std::size_t piece = 1; piece <= bytes.size(); ++piece) REQUIRE(read(bytes, piece) == expected);
}

TEST_CASE("lines that the reader has are dropped, until the first new one of their file") {
    std::string bytes;
    LineWriter writer;
    const auto rank = owner(0, 35, "h");
    for (const std::uint64_t end : {10, 20, 30, 5}) {
        auto sent = line(rank, std::to_string(end));
        sent.end = end;
        writer.append(bytes, 0, "0/stdout.log", sent);
        writer.append(bytes, 1, "1/stdout.log", sent);
    }
    LogWireReader reader;
    reader.drop_up_to({{"0/stdout.log", 20}, {"2/stdout.log", 7}});
    reader.append(bytes);
    std::string read;
    for (auto message = reader.next(); message && *message; message = reader.next()) {
        const auto& sent = std::get<SentLine>(**message);
        read += std::to_string(sent.file) + ":" + sent.line.text + " ";
    }
    // The last one is of a file that was cut.
    CHECK(read == "1:10 1:20 0:30 1:30 0:5 1:5 ");
    CHECK(reader.positions() == std::map<std::string, std::uint64_t>{{"0/stdout.log", 5}, {"1/stdout.log", 5}});
}

TEST_CASE("of a file that was cut no line is dropped") {
    std::string bytes;
    LineWriter writer;
    for (const bool is_cut : {false, true, true}) {
        auto sent = line(owner(0, 35, "h"), is_cut ? "new" : "old");
        sent.end = 10;
        if (is_cut) sent.cut_bytes = 19;
        writer.append(bytes, 0, "0/stdout.log", sent);
        sent.cut_bytes.reset();
        writer.append(bytes, 1, "1/stdout.log", sent);
    }
    LogWireReader reader;
    reader.drop_up_to({{"0/stdout.log", 20}, {"1/stdout.log", 20}});
    reader.append(bytes);
    std::string read;
    for (auto message = reader.next(); message && *message; message = reader.next()) {
        const auto& sent = std::get<SentLine>(**message);
        read += std::to_string(sent.file) + ":" + sent.line.text + " ";
    }
    CHECK(read == "0:new 0:new ");
    CHECK(reader.positions() == std::map<std::string, std::uint64_t>{{"0/stdout.log", 10}});
}

TEST_CASE("a file that was cut before the reader met it is no new file, until it is cut again") {
    std::string bytes;
    LineWriter writer;
    for (const auto& [text, cut_bytes] : {std::pair{"has", 20}, {"has too", 20}, {"new", 10}}) {
        auto sent = line(owner(0, 35, "h"), text);
        sent.end = 8;
        sent.cut_bytes = cut_bytes;
        writer.append(bytes, 0, "0/stdout.log", sent);
    }
    LogWireReader reader;
    reader.drop_up_to({{"0/stdout.log", 20}});
    reader.append(bytes);
    const auto message = reader.next();
    REQUIRE((message && *message));
    CHECK(std::get<SentLine>(**message).line.text == "new");
    CHECK(reader.positions() == std::map<std::string, std::uint64_t>{{"0/stdout.log", 8}});
}

TEST_CASE("half a line that the reader has is no new line when the next heading has ended it") {
    const std::tuple<std::uint64_t, std::string, bool> cases[] = {
        {16, "half", false}, {20, "", true},  {19, "h", false},
        {20, "h", true},     {12, "h", true}, {0, "h", true}};  // lines between were left out, or it is the first
    for (const auto& [begin, text, is_new] : cases) {
        CAPTURE(begin, text);
        std::string bytes;
        LineWriter writer;
        auto sent = line(owner(0, 35, "h"), "before");
        sent.end = begin;
        writer.append(bytes, 0, "a", sent);
        sent.text = text;
        sent.end = 21;
        writer.append(bytes, 0, "a", sent);
        sent.text = "next";
        sent.end = 26;
        writer.append(bytes, 0, "a", sent);
        LogWireReader reader;
        reader.drop_up_to({{"a", 20}});
        reader.append(bytes);
        const auto message = reader.next();
        REQUIRE((message && *message));
        CHECK(std::get<SentLine>(**message).line.text == (is_new ? text : "next"));
    }
}

TEST_CASE("no damage of a byte makes a viewer read beyond what has come") {
    const auto whole = all_kinds();
    for (std::size_t at = 0; at < whole.size(); ++at)
        for (const char letter : {'\0', '\n', ' ', '9', 'x', '\xff'}) {
            auto bytes = whole;
            bytes[at] = letter;
            CHECK(read(bytes, 7).size() < 2 * whole.size());
        }
}

TEST_CASE("lines that say too much, or whose owner was not said, end the reading") {
    for (const std::string bytes :
         {"line 0 at 1 to 9 n 3\nabc\n", "file 0 round 1 rank 1 on h\nline 0 at 1 to 9 n 1048577\n",
          "file 0 round 1 rank 1 on h\nline 0 at 1 to 9 n -1\n",
          "file 0 round 1 rank 1 on h\nline 0 at 1 to 9 q 1\na\n",
          "file 0 round 1 rank 1 on h\nline 0 at 1 to 9 n 1\nab\n", "file 8192 round 1 rank 1 on h\n",
          "path 0 a\npath 0 b\n", "cut 0\n", "cut 0 x\n", "cut 0 1 2\n", "hello\n", "\n"}) {
        CAPTURE(bytes);
        CHECK(read(bytes, bytes.size()).ends_with("!"));
    }
    CHECK(read(std::string(5000, 'x'), 5000) == "!");
}

TEST_CASE("a viewer knows where each file goes on") {
    std::string bytes;
    LineWriter writer;
    auto one = line(owner(0, 0, "h"), "one");
    one.end = 40;
    writer.append(bytes, 0, "attempt_0/0/stdout.log", one);
    one.end = 44;
    writer.append(bytes, 0, "attempt_0/0/stdout.log", one);
    LogWireReader reader;
    reader.append(bytes);
    REQUIRE(reader.next().has_value());
    CHECK(reader.positions().at("attempt_0/0/stdout.log") == 40);
    REQUIRE(reader.next().has_value());
    CHECK(reader.positions().at("attempt_0/0/stdout.log") == 44);
}
