#include "agent/diagnosis/suspect.h"

#include "tests/support/catch.h"

namespace muster::agent {
namespace {

ActivityGroup stands(std::int32_t rank, std::uint32_t count, bool inside, std::string operation) {
    return {"gpu1", {rank, 100 + rank, 4'000, "asleep", inside, std::move(operation), ""}, "", count};
}

Verdict verdict_of(std::vector<ActivityGroup> groups, FailureKind kind = FailureKind::communication_error) {
    Verdict verdict;
    verdict.first.emplace().kind = kind;
    verdict.activities = std::move(groups);
    return verdict;
}

std::string suspect_in(const Verdict& verdict) {
    const auto suspect = suspect_of(verdict);
    return suspect ? suspect->text() : std::string();
}

}  // namespace

TEST_CASE("of ranks that only gave up waiting, the one outside of all operations is looked at first") {
    const auto missing = stands(3, 1, false, "all_reduce 41 of world");
    const auto waiting = stands(0, 3, true, "all_reduce 42 of world");
    CHECK(suspect_in(verdict_of({missing, waiting})) ==
          "rank 3 on gpu1 (pid 103), missing from all_reduce 42 of world");
    CHECK(suspect_in(verdict_of({missing, stands(0, 1, true, "all_reduce 42 of world")})).starts_with("rank 3 "));
    CHECK(suspect_in(verdict_of({missing})).empty());
    CHECK(suspect_in(verdict_of({stands(2, 1, false, ""), missing, waiting})).empty());
    CHECK(suspect_in(verdict_of({stands(1, 4, false, ""), waiting})).empty());
    CHECK(suspect_in(verdict_of({missing, waiting}, FailureKind::worker_error)).empty());
    CHECK(suspect_in(Verdict{}).empty());
}

TEST_CASE("of ranks inside different operations the minority is looked at first, if there is one") {
    const auto odd = stands(3, 1, true, "gloo:broadcast 4 of default_pg");
    const auto most = stands(0, 2, true, "gloo:all_reduce 4 of default_pg");
    const auto same = stands(2, 1, true, "gloo:all_reduce 4 of default_pg");  // at another line
    CHECK(suspect_in(verdict_of({odd, same, most})) ==
          "rank 3 on gpu1 (pid 103), inside gloo:broadcast 4 of default_pg where "
          "most are inside gloo:all_reduce 4 of default_pg");
    CHECK(suspect_in(verdict_of({odd, same})).empty());  // of two neither is right
    CHECK(suspect_in(verdict_of({odd, stands(2, 1, true, "gloo:barrier 4 of default_pg"), most})).empty());
    // Other communicators: it may be as it should be.
    CHECK(suspect_in(verdict_of({stands(3, 1, true, "send 4 of stages"), most})).empty());
    CHECK(suspect_in(
              verdict_of({stands(3, 1, true, "send 4 of stage 1 of 2"), stands(0, 2, true, "recv 4 of stage 2 of 2")}))
              .empty());
    CHECK(suspect_in(verdict_of({stands(3, 1, true, "send 4 of undefined"), stands(0, 2, true, "recv 4 of undefined")}))
              .empty());
    CHECK(suspect_in(verdict_of({stands(3, 1, true, ""), stands(0, 2, true, "")})).empty());
}

TEST_CASE("whom a signal has stopped is looked at first, wherever it stands") {
    auto stopped = stands(2, 1, true, "all_reduce 42 of world");
    stopped.first.state = "stopped by a signal in do_signal_stop";
    const auto waiting = stands(0, 3, true, "all_reduce 42 of world");
    CHECK(suspect_in(verdict_of({stopped, waiting})) ==
          "rank 2 on gpu1 (pid 102), stopped by a signal in do_signal_stop");
    CHECK(suspect_in(verdict_of({stands(0, 1, false, ""), stopped})).starts_with("rank 2 "));
    auto lost = stands(1, 1, false, "");
    lost.first.idle_ms = 0;
    CHECK(suspect_in(verdict_of({lost, stopped})).empty());  // its node is the cause
    auto several = stands(4, 2, true, "");
    several.first.state = stopped.first.state;
    several.ranks = "4-5";
    CHECK(suspect_in(verdict_of({several, waiting})) == "ranks 4-5 (2 workers), stopped by a signal in do_signal_stop");
}

}  // namespace muster::agent
