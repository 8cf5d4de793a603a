#include "rendezvous/rounds/ledgers/failure_groups.h"

#include <algorithm>
#include <random>

#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"
#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

Failure failure(std::int32_t rank, std::string message, FailureKind kind = FailureKind::worker_error) {
    Failure made;
    made.kind = kind;
    made.host = "gpu01";
    made.rank = rank;
    made.pid = 1000 + rank;
    made.end = Exited{1};
    made.message = std::move(message);
    return made;
}

std::vector<FailureGroup> groups_of(const std::vector<Failure>& failures) {
    FailureGroups groups;
    for (const auto& one : failures) groups.add(one);
    return groups.list(failures.front());
}

}  // namespace

TEST_CASE("equal errors are one group with its ranks as ranges") {
    std::vector<Failure> failures;
    for (const int rank : {12, 3, 0, 1, 5, 2, 4, 7, 6})
        failures.push_back(failure(rank, cat("Traceback (most recent call last):\n  File \"t.py\", line ", rank,
                                             "\nConnectionError: 10.0.0.", rank, ":", 5000 + rank, " is gone\n")));
    const auto groups = groups_of(failures);
    REQUIRE(groups.size() == 1);
    CHECK(groups[0].ranks == "0-7,12");
    CHECK(groups[0].count == 9);
    CHECK(groups[0].error == "exit code 1 - ConnectionError: 10.0.0.0:5000 is gone");  // the lowest rank's
}

TEST_CASE("the first cause's group comes first, then the kinds in the order of blame, then the larger groups") {
    std::vector<Failure> failures{failure(8, "ValueError: mine")};
    for (int rank = 0; rank < 3; ++rank)
        failures.push_back(failure(rank, "peer gone", FailureKind::communication_error));
    failures.push_back(failure(4, "small"));
    for (int rank = 5; rank < 7; ++rank) failures.push_back(failure(rank, "large"));
    const auto groups = groups_of(failures);
    REQUIRE(groups.size() == 4);
    CHECK(groups[0].ranks == "8");
    CHECK(groups[1].ranks == "5-6");
    CHECK(groups[2].ranks == "4");
    CHECK(groups[3].ranks == "0-2");
}

TEST_CASE("another end, another exception or another cause is another group") {
    auto killed = failure(1, "same");
    killed.end = Signaled{9, false};
    auto starved = failure(2, "same");
    starved.cause = {CauseKind::out_of_memory, "memory ran out", ""};
    CHECK(groups_of({failure(0, "same"), killed, starved, failure(3, "other")}).size() == 4);
}

TEST_CASE("of a traceback the exception counts, and not what a library says after it") {
    auto one = failure(5, "");
    one.stderr_tail =
        "[rank5]: Traceback (most recent call last):\n[rank5]:   File \"t.py\", line 1\n[rank5]: ValueError: bad\n"
        "[rank5]:[W1121 10:00:00] Warning: destroy_process_group() was not called\n";
    CHECK(error_line(one) == "exit code 1 - ValueError: bad");
    one.stderr_tail = "first\nlast words\n\n";
    CHECK(error_line(one) == "exit code 1 - last words");
    one.stderr_tail.clear();
    CHECK(error_line(one) == "exit code 1");
}

TEST_CASE("nodes are told by name, each of them") {
    Failure lost;
    lost.kind = FailureKind::node_lost;
    lost.host = "gpu01";
    lost.message = "silent for 5 s";
    Failure other = lost;
    other.host = "gpu02";
    const auto groups = groups_of({lost, other});
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].error == "gpu01 was lost: silent for 5 s");
    CHECK(groups[0].ranks.empty());
}

TEST_CASE("many errors and many pieces stay within their limits") {
    std::mt19937 random(7);
    std::vector<Failure> failures;
    for (int rank = 0; rank < 5'000; rank += 2) failures.push_back(failure(rank, "the same"));
    for (int other = 0; other < 500; ++other)
        failures.push_back(failure(10'000 + other, std::string(1'000, static_cast<char>('g' + other % 20)) +
                                                       static_cast<char>('g' + other / 20)));
    std::shuffle(failures.begin() + 1, failures.end(), random);
    const auto groups = groups_of(failures);
    CHECK(groups.size() == native::groups_max);
    CHECK(groups[0].count == 2'500);
    CHECK(groups[0].ranks.ends_with(" and 2436 more"));
    CHECK(groups[0].ranks.size() < native::ranks_bytes_max);
    for (const auto& group : groups) CHECK(group.error.size() <= 300);
}

}  // namespace muster::rendezvous
