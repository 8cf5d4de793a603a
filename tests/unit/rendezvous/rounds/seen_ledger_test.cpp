#include "rendezvous/rounds/ledgers/seen_ledger.h"

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::rendezvous {
namespace {

using native::SeenWorker;
using native::WorkerPace;

constexpr Duration gathered_for = 500ms;

/// Nodes of one worker each, rank and index alike.
struct Nodes {
    explicit Nodes(std::int32_t count) {
        for (std::int32_t rank = 0; rank < count; ++rank) says(rank, WorkerPace::usual);
    }
    void says(std::int32_t rank, WorkerPace pace, std::int32_t percent = -1) {
        const bool waits = pace == WorkerPace::waiting;
        auto& one = all[rank];
        one.host = cat("gpu", rank);
        one.workers = {{{rank, 100 + rank, pace == WorkerPace::overdue ? 12'000U : 0U, "asleep", waits,
                         waits ? "all_reduce 42 of world" : "all_reduce 41 of world", ""},
                        pace,
                        percent}};
        one.at = now;
        ledger.note(one.workers, now);
    }
    void waits(std::int32_t rank) { says(rank, WorkerPace::waiting); }
    void overdue(std::int32_t rank) { says(rank, WorkerPace::overdue); }

    /// Time passes; what is told meanwhile, a line each.
    std::vector<std::string> after(Duration time) {
        std::vector<std::string> lines;
        const auto until = now + time;
        while (ledger.due() <= until) {
            now = std::max(now, ledger.due());
            ++looks;
            std::vector<SeenLedger::Node> nodes;
            for (const auto& [rank, one] : all) nodes.push_back({one.host, one.workers, one.at});
            auto said = ledger.look(nodes, now);
            if (!said) continue;
            ++told;
            for (const auto& line : said->lines) lines.push_back(line.text);
            last = std::move(said);
        }
        now = until;
        return lines;
    }

    struct One {
        std::string host;
        std::vector<SeenWorker> workers;
        Instant at;
    };
    SeenLedger ledger;
    std::map<std::int32_t, One> all;
    Instant now{1000s};
    std::optional<native::JobSeen> last;
    int looks = 0;
    int told = 0;
};

}  // namespace

TEST_CASE("one that is overdue while another node waits is named with host and pid, and what it is missing from") {
    for (const bool waits_first : {false, true}) {
        Nodes nodes(3);
        if (waits_first) nodes.waits(0);
        nodes.overdue(1);
        nodes.waits(2);
        if (!waits_first) nodes.waits(0);
        CHECK(nodes.after(gathered_for) ==
              std::vector<std::string>{
                  "rank 1 (pid 101) on gpu1 has done nothing for 12.5 s (asleep, after all_reduce 41 of world); it is "
                  "missing from all_reduce 42 of world, in which rank 0 (pid 100) on gpu0 waits"});
        REQUIRE(nodes.last);
        CHECK(nodes.last->lines[0].rank == 1);
        CHECK(nodes.last->waiting == native::WaitingWorker{"gpu0", 0, 100, "all_reduce 42 of world"});
    }
}

TEST_CASE("nobody is named where nobody waits, nobody is overdue, or the one is over when the other begins") {
    Nodes nodes(2);
    CHECK(nodes.ledger.due() == no_deadline);
    nodes.overdue(1);
    CHECK(nodes.after(5s).empty());
    nodes.says(1, WorkerPace::usual);
    nodes.waits(0);
    CHECK(nodes.after(5s).empty());
    nodes.says(0, WorkerPace::usual);
    nodes.overdue(1);
    CHECK(nodes.after(5s).empty());
    nodes.waits(0);
    nodes.says(1, WorkerPace::usual);  // it came, before the words were put together
    CHECK(nodes.after(60s).empty());
}

TEST_CASE("what a node said that has fallen silent since counts neither as waiting nor as overdue") {
    Nodes nodes(2);
    nodes.waits(0);
    nodes.after(16s);
    nodes.overdue(1);
    CHECK(nodes.after(1s).empty());
    Nodes other(2);
    other.overdue(1);
    other.after(16s);
    other.waits(0);
    CHECK(other.after(1s).empty());
    other.overdue(1);  // it is back
    CHECK(other.after(1s).size() == 1);
}

TEST_CASE("each is named once for each of its pauses, and something is told at most every ten seconds") {
    Nodes nodes(64);
    for (std::int32_t rank = 0; rank < 32; ++rank) nodes.waits(rank);
    nodes.overdue(40);
    CHECK(nodes.after(gathered_for).size() == 1);
    for (std::int32_t rank = 48; rank < 64; ++rank) {
        nodes.overdue(rank);
        CHECK(nodes.after(100ms).empty());
    }
    CHECK(
        nodes.after(10s) ==
        std::vector<std::string>{
            "ranks 48-63 (16 workers; rank 48 is pid 148 on gpu48) have done nothing for 22 s (asleep, after "
            "all_reduce 41 of world); they are missing from all_reduce 42 of world, in which rank 0 (pid 100) on gpu0 "
            "waits"});
    CHECK(nodes.last->lines[0].rank == -1);
    // All say the same again every ten seconds: nothing is new, and few looks are needed for it.
    const auto looks = nodes.looks;
    for (int i = 0; i < 6; ++i) {
        for (std::int32_t rank = 0; rank < 64; ++rank) rank < 32 ? nodes.waits(rank) : nodes.overdue(rank);
        if (i == 0) CHECK(nodes.after(10s).size() == 1);  // the others of them, in one line
        CHECK(nodes.after(10s).empty());
    }
    CHECK(nodes.looks - looks <= 8);
    CHECK(nodes.told == 3);
    nodes.says(40, WorkerPace::usual);
    for (std::int32_t rank = 0; rank < 32; ++rank) nodes.waits(rank);
    nodes.after(10s);
    nodes.overdue(40);
    CHECK(nodes.after(1s).size() == 1);
}

TEST_CASE("a straggler among nodes is told with what it costs the others, after a minute and then now and then") {
    Nodes nodes(4);
    const auto train = [&](int minutes, std::int32_t others, std::int32_t slow) {
        std::vector<std::string> lines;
        for (int i = 0; i < 6 * minutes; ++i) {
            for (std::int32_t rank = 0; rank < 4; ++rank)
                nodes.says(rank, WorkerPace::usual, rank == 2 ? slow : others);
            for (auto& line : nodes.after(10s)) lines.push_back(std::move(line));
        }
        return lines;
    };
    CHECK(train(3, 30, 20).empty());
    CHECK(train(3, 50, 10).size() == 1);
    const auto again = train(11, 50, 10);
    REQUIRE(again.size() == 1);
    CHECK(again[0] ==
          "rank 2 (pid 102) on gpu2 is a straggler: the other ranks of the job wait for it 40 % of their time");
    CHECK_FALSE(nodes.last->waiting);
    CHECK(nodes.last->lines[0].rank == -1);
    CHECK(train(5, -1, -1).empty());  // nobody has begun an operation lately
    Nodes one(1);
    for (int i = 0; i < 30; ++i) {
        one.says(0, WorkerPace::usual, 50);
        CHECK(one.after(10s).empty());
    }
}

TEST_CASE("words that keep coming put nothing off") {
    Nodes nodes(16);
    nodes.overdue(15);
    std::size_t told = 0;
    for (std::int32_t rank = 0; rank < 6; ++rank) {
        nodes.waits(rank);
        told += nodes.after(100ms).size();
    }
    CHECK(told == 1);
}

TEST_CASE("a rank that is never inside an operation is the worst of stragglers") {
    Nodes nodes(3);
    std::vector<std::string> lines;
    for (int i = 0; i < 7; ++i) {
        for (std::int32_t rank = 0; rank < 3; ++rank) nodes.says(rank, WorkerPace::usual, rank == 1 ? 0 : 50);
        for (auto& line : nodes.after(10s)) lines.push_back(std::move(line));
    }
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].ends_with("wait for it 50 % of their time"));
}

TEST_CASE("a straggler beside its only node's others is that node's own business") {
    SeenLedger ledger;
    std::vector<SeenWorker> workers(2);
    workers[1].at.rank = 1;
    workers[0].inside_percent = 50;
    workers[1].inside_percent = 0;
    const std::string host = "gpu";
    ledger.note(workers, Instant(1000s));
    CHECK_FALSE(ledger.look({{host, workers, Instant(1060s)}}, Instant(1060s)));
}

TEST_CASE("shares are kept of no more ranks than all nodes of a job can tell of") {
    constexpr auto ranks_max = static_cast<std::int32_t>(native::peers_max * native::activities_max);
    const auto straggler_among = [](std::int32_t count) {
        SeenLedger ledger;
        std::vector<SeenWorker> workers(static_cast<std::size_t>(count));
        for (std::int32_t rank = 0; rank < count; ++rank) {
            workers[static_cast<std::size_t>(rank)].at.rank = rank;
            workers[static_cast<std::size_t>(rank)].inside_percent = 50;
        }
        workers.back().inside_percent = 10;
        ledger.note(workers, Instant(1000s));
        const std::string host = "gpu";
        const std::vector<SeenWorker> last{workers.back()}, none;
        return ledger.look({{host, last, Instant(1060s)}, {host, none, Instant(1060s)}}, Instant(1060s)).has_value();
    };
    CHECK(straggler_among(ranks_max));
    CHECK_FALSE(straggler_among(ranks_max + 1));
}

TEST_CASE("who does not come is told before a straggler, who is told a minute later") {
    Nodes nodes(4);
    const auto train = [&](int times) {
        std::vector<std::string> lines;
        for (int i = 0; i < times; ++i) {
            for (std::int32_t rank = 0; rank < 4; ++rank) nodes.says(rank, WorkerPace::usual, rank == 2 ? 10 : 50);
            for (auto& line : nodes.after(10s)) lines.push_back(std::move(line));
        }
        return lines;
    };
    CHECK(train(6).empty());
    nodes.waits(0);
    nodes.overdue(1);
    const auto missing = nodes.after(gathered_for);
    REQUIRE(missing.size() == 1);
    CHECK(missing[0].starts_with("rank 1 "));
    const auto later = train(7);
    REQUIRE(later.size() == 1);
    CHECK(later[0].starts_with("rank 2 (pid 102) on gpu2 is a straggler: "));
}

TEST_CASE("every node of the round hears who does not come, and nothing ends for it") {
    test::Story story("min=2 max=2 spares=1");
    story.answers("join n0 slots=2\njoin n1\njoin n2");
    CHECK_FALSE(test::says(story.answers("seen n0\nseen n1 overdue\nadvance 11s"), "JobSeen"));
    const auto told = story.answers("seen n1 overdue\nseen n0 waiting\nadvance 1s");
    CHECK(test::says(told,
                     "n0 n1 <- JobSeen 0: [rank 2 (pid 103) on n1 has done nothing for 12.5 s (asleep, after "
                     "all_reduce 41 of world); it is missing from all_reduce 42 of world, in which rank 0 (pid "
                     "102) on n0 waits]"));
    CHECK_FALSE(test::says(told, "RoundEnded"));
}

TEST_CASE("what was seen in one round is nothing in the next, nor of a node that is away or through") {
    test::Story story("min=2 max=2 restarts=3 last_call=1s");
    story.answers("join n0\njoin n1\nseen n1 overdue\nseen n0 waiting\nfail n0\nrejoin n0\nrejoin n1");
    CHECK_FALSE(test::says(story.answers("advance 20s"), "JobSeen"));
    CHECK_FALSE(test::says(story.answers("seen n0 waiting\nadvance 5s"), "JobSeen"));
    // Away at the moment when the words are put together.
    CHECK_FALSE(
        test::says(story.answers("seen n1 overdue\nadvance 300ms\nclose n0\nadvance 300ms\nresume n0"), "JobSeen"));
    CHECK(test::says(story.answers("advance 1s\nseen n1 overdue\nseen n0 waiting\nadvance 11s"), "n0 n1 <- JobSeen 1"));
    story.answers("seen n0 waiting\nsucceed n0\nseen n1\nadvance 11s");
    CHECK_FALSE(test::says(story.answers("seen n1 overdue\nadvance 1s"), "JobSeen"));
}

TEST_CASE("in the next round a rank is named again at once, and words of the round before are nothing there") {
    test::Story story("min=2 max=2 restarts=3 last_call=1s");
    story.answers("join n0\njoin n1");
    CHECK(test::says(story.answers("seen n1 overdue\nseen n0 waiting\nadvance 1s"), "n0 n1 <- JobSeen 0"));
    story.answers("fail n0\nrejoin n0\nrejoin n1");
    CHECK_FALSE(test::says(story.answers("seen n0 waiting\nadvance 1s"), "JobSeen"));
    CHECK_FALSE(test::says(story.answers("seen n1 overdue round=0\nseen n0 waiting\nadvance 1s"), "JobSeen"));
    CHECK(test::says(story.answers("seen n1 overdue\nadvance 1s"), "n0 n1 <- JobSeen 1"));
}

}  // namespace muster::rendezvous
