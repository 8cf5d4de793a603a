#include "rendezvous/rounds/ledgers/verdict.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

struct At {
    Duration at;
    Duration error = 0ns;
};

Failure failure(FailureKind kind, const char* host, At when) {
    Failure made;
    made.kind = kind;
    made.host = host;
    made.at_ns = when.at.count();
    made.uncertainty_ns = when.error.count();
    return made;
}

/// Whatever order the reports arrive in.
std::string cause(std::vector<Failure> failures) {
    const auto by_host = [](const Failure& a, const Failure& b) { return a.host < b.host; };
    std::sort(failures.begin(), failures.end(), by_host);
    const auto first = first_cause(failures, 500ms).host;
    while (std::next_permutation(failures.begin(), failures.end(), by_host))
        CHECK(first_cause(failures, 500ms).host == first);
    return first;
}

constexpr auto lost = FailureKind::node_lost;
constexpr auto killed = FailureKind::killed;
constexpr auto error = FailureKind::worker_error;
constexpr auto communication = FailureKind::communication_error;

}  // namespace

TEST_CASE("the earliest failure is the cause") {
    CHECK(cause({failure(error, "a", {100ms}), failure(error, "b", {90ms}), failure(error, "c", {200ms})}) == "b");
    CHECK(cause({failure(error, "a", {100ms}), failure(killed, "b", {150ms})}) == "a");
}

TEST_CASE("within the error of the clocks the kind decides") {
    CHECK(cause({failure(error, "a", {100ms, 30ms}), failure(killed, "b", {150ms, 30ms})}) == "b");
    CHECK(cause({failure(error, "a", {100ms}), failure(killed, "b", {104ms})}) == "b");
    CHECK(cause({failure(killed, "a", {100ms, 1ms}), failure(lost, "b", {103ms, 1ms})}) == "b");
}

TEST_CASE("victims that exit first with communication errors do not hide their cause") {
    CHECK(cause({failure(communication, "a", {100ms}), failure(communication, "b", {101ms}),
                 failure(error, "c", {400ms})}) == "c");
    // A second cause much later is none of the first one's victims' doing.
    CHECK(cause({failure(communication, "a", {100ms}), failure(error, "b", {110ms}), failure(killed, "c", {450ms})}) ==
          "b");
    CHECK(cause({failure(communication, "a", {100ms}), failure(error, "b", {700ms})}) == "a");
}

TEST_CASE("communication errors alone: the earliest one") {
    CHECK(cause({failure(communication, "a", {100ms}), failure(communication, "b", {99ms})}) == "b");
}

TEST_CASE("a node that was lost some time before the failures caused them") {
    // Its last word was at 0, its loss known at 1000 ms.
    CHECK(cause({failure(lost, "a", {500ms, 500ms}), failure(error, "b", {600ms}), failure(killed, "c", {601ms})}) ==
          "a");
}

TEST_CASE("times from the wire may be anything") {
    auto wild = failure(lost, "a", {0ns});
    wild.at_ns = INT64_MIN;
    wild.uncertainty_ns = INT64_MAX;
    auto wilder = failure(communication, "b", {0ns});
    wilder.at_ns = INT64_MAX;
    wilder.uncertainty_ns = INT64_MIN;
    CHECK(cause({wild, wilder}) == "a");
}

}  // namespace muster::rendezvous
