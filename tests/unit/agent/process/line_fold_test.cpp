#include "agent/output/line_fold.h"

#include "tests/support/catch.h"

using namespace muster;
using agent::LineFold;
using Ending = LineFold::Ending;

namespace {

/// A node with ranks from 0; times are milliseconds from an arbitrary beginning.
class Node {
  public:
    explicit Node(std::uint32_t workers, LineFold::Limits limits = LineFold::Limits()) : fold_(limits) {
        for (std::uint32_t rank = 0; rank < workers; ++rank)
            ids_.push_back(fold_.open(rank, workers, "[" + std::to_string(rank) + "]: "));
    }
    void say(std::uint32_t rank, std::string_view line, Ending ending = Ending::newline) {
        fold_.add(ids_[rank], line, ending, now_);
    }
    void say(std::uint32_t first, std::uint32_t last, std::string_view line) {
        for (auto rank = first; rank <= last; ++rank) say(rank, line);
    }
    void traceback(std::uint32_t rank, std::string_view error) {
        say(rank, "Traceback (most recent call last):");
        say(rank, "  File \"train.py\", line 5, in <module>");
        say(rank, "    main()");
        say(rank, error);
    }
    void wait(Duration duration) {
        now_ += duration;
        fold_.show_due(now_);
    }
    void end_of(std::uint32_t rank) { fold_.close(ids_[rank], now_); }
    void bar_ends(std::uint32_t rank) { fold_.end_bar(ids_[rank], now_); }
    void show_all() { fold_.show_all(now_); }
    std::string text() { return fold_.take(); }
    Duration due_in() const { return fold_.due() - now_; }
    bool idle() const { return fold_.due() == no_deadline; }

  private:
    LineFold fold_;
    std::vector<LineFold::SourceId> ids_;
    Instant now_ = Instant() + 1000s;
};

}  // namespace

TEST_CASE("a line that all ranks print is two lines, at once") {
    Node node(32);
    node.say(3, "loading");
    CHECK(node.text() == "[3]: loading\n");
    node.say(0, 2, "loading");
    node.say(4, 30, "loading");
    CHECK(node.text().empty());
    node.say(31, "loading");
    CHECK(node.text() == "  [same from all 32 ranks of this node]\n");
    CHECK(node.idle());
}

TEST_CASE("a thousand equal lines are two after a second of quiet, with the right ranks") {
    Node node(1001);
    node.say(0, 999, "NCCL warning");
    CHECK(node.text() == "[0]: NCCL warning\n");
    CHECK(node.due_in() == 1s);
    node.wait(1s);
    CHECK(node.text() == "  [same from all ranks of this node but 1000; 1000 in all]\n");
}

TEST_CASE("who printed a line is said in the shortest way that is exact") {
    Node node(16);
    SECTION("few") {
        node.say(1, "x");
        node.say(5, 7, "x");
        node.wait(1s);
        CHECK(node.text() == "[1]: x\n  [same from ranks 5-7; 4 in all]\n");
    }
    SECTION("one other") {
        node.say(1, "x");
        node.say(5, "x");
        node.wait(1s);
        CHECK(node.text() == "[1]: x\n  [same from rank 5; 2 in all]\n");
    }
    SECTION("only one") {
        node.say(1, "x");
        node.wait(1s);
        CHECK(node.text() == "[1]: x\n");
    }
    SECTION("all but some") {
        node.say(0, 14, "x");
        node.wait(1s);
        CHECK(node.text() == "[0]: x\n  [same from all ranks of this node but 15; 15 in all]\n");
    }
}

TEST_CASE("ranks that have not started yet are no reason to say all") {
    LineFold fold;
    const auto now = Instant() + 1s;
    fold.add(fold.open(0, 8, "[0]: "), "x", Ending::newline, now);
    fold.add(fold.open(1, 8, "[1]: "), "x", Ending::newline, now);
    CHECK(fold.take() == "[0]: x\n");
    fold.show_due(now + 1s);
    CHECK(fold.take() == "  [same from rank 1; 2 in all]\n");
}

TEST_CASE("where other lines came in between, the line is named again") {
    Node node(4);
    node.say(0, "loading");
    node.say(1, "something else");
    node.say(2, "loading");
    node.wait(1s);
    CHECK(node.text() == "[0]: loading\n[1]: something else\n[same from rank 2; 2 in all] loading\n");
}

TEST_CASE("a rank's own repetitions are counted, in every window") {
    Node node(4);
    for (int i = 0; i < 100; ++i) {
        node.say(2, "waiting for the lock");
        node.wait(100ms);
    }
    // Windows of 5 s: the line and its count, twice.
    CHECK(node.text() ==
          "[2]: waiting for the lock\n  [again 49 times in 4.9 s]\n[2]: waiting for the lock\n"
          "  [again 49 times in 4.9 s]\n");
    node.say(0, 1, "y");
    node.say(0, "y");
    node.wait(1s);
    CHECK(node.text() == "[0]: y\n  [same from rank 1; 2 in all; once more in 1 ms]\n");
}

TEST_CASE("a traceback is one unit, alike in all but numbers") {
    Node node(4);
    node.say(0, "[rank0]: Traceback (most recent call last):");
    node.traceback(1, "ValueError: port 4711 is taken");
    node.say(0, "[rank0]:   File \"train.py\", line 5, in <module>");
    node.say(0, "[rank0]:     main()");
    node.say(0, "[rank0]: ValueError: no such thing");
    node.traceback(2, "ValueError: port 4712 is taken");
    CHECK(node.text() ==
          "[1]: Traceback (most recent call last):\n[1]:   File \"train.py\", line 5, in <module>\n[1]:     main()\n"
          "[1]: ValueError: port 4711 is taken\n"
          "[0]: [rank0]: Traceback (most recent call last):\n[0]: [rank0]:   File \"train.py\", line 5, in <module>\n"
          "[0]: [rank0]:     main()\n[0]: [rank0]: ValueError: no such thing\n");
    node.wait(1s);
    CHECK(node.text() == "[same but for numbers from rank 2; 2 in all] ValueError: port 4711 is taken\n");
}

TEST_CASE("a traceback that does not end is shown") {
    Node node(2);
    node.say(0, "Traceback (most recent call last):");
    node.say(0, "  File \"train.py\"");
    CHECK(node.text().empty());
    CHECK(node.due_in() == 200ms);
    SECTION("after a short time") {
        node.wait(200ms);
    }
    SECTION("when its worker ends") {
        node.end_of(0);
    }
    SECTION("when another one begins") {
        node.say(0, "Traceback (most recent call last):");
        node.say(0, "E");
    }
    SECTION("when the launcher ends") {
        node.show_all();
    }
    CHECK(node.text().starts_with("[0]: Traceback (most recent call last):\n[0]:   File \"train.py\"\n"));
}

TEST_CASE("of a progress bar the last state is shown") {
    Node node(2);
    for (const auto* state : {"10%", "20%", "30%"}) node.say(0, state, Ending::carriage_return);
    CHECK(node.text().empty());
    SECTION("after a second") {
        node.wait(1s);
        CHECK(node.text() == "[0]: 30%\n");
    }
    SECTION("each 5 seconds while it moves") {
        for (int i = 0; i < 10; ++i) {
            node.wait(500ms);
            node.say(0, std::to_string(40 + i) + "%", Ending::carriage_return);
        }
        CHECK(node.text() == "[0]: 48%\n");
    }
    SECTION("not if a line takes its place") {
        node.say(0, "100%");
        CHECK(node.text() == "[0]: 100%\n");
    }
    SECTION("but a line that ended with both is a line") {
        node.bar_ends(0);
        node.say(0, "next", Ending::newline);
        CHECK(node.text() == "[0]: 30%\n[0]: next\n");
    }
    SECTION("when its worker ends") {
        node.end_of(0);
        CHECK(node.text() == "[0]: 30%\n");
    }
}

TEST_CASE("blank and very long lines are shown as they are") {
    Node node(4, {.line_max_bytes = 8});
    node.say(0, 1, "");
    node.say(0, 1, "123456789");
    CHECK(node.text() == "[0]: \n[1]: \n[0]: 123456789\n[1]: 123456789\n");
    CHECK(node.idle());
}

TEST_CASE("a long line is named by its beginning, without half a character") {
    Node node(4);
    std::string line(119, 'a');
    line += "\xc3\xa4 and more";
    node.say(0, line);
    node.say(1, "b");
    node.say(2, line);
    node.wait(1s);
    CHECK(node.text().ends_with("[same from rank 2; 2 in all] " + std::string(119, 'a') + "...\n"));
}

TEST_CASE("memory is bounded: the oldest line is told early") {
    Node node(2, {.open_max = 3});
    node.say(0, 1, "all");
    for (const auto* line : {"a", "b", "c"}) node.say(0, line);
    node.say(0, "a");
    (void)node.text();
    node.say(0, "d");
    CHECK(node.text() == "[0]: d\n[again once in 1 ms] a\n");
    node.show_all();
    CHECK(node.text().empty());
}
