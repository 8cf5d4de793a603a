#include "rendezvous/rounds/ledgers/failure_ledger.h"

#include <random>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/ledgers/verdict.h"
#include "rendezvous/wire/native/limits.h"
#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

Failure failure(FailureKind kind, std::int32_t rank, Duration at) {
    Failure made;
    made.kind = kind;
    made.host = cat("host", rank / 8);
    made.rank = rank;
    made.pid = 1000 + rank;
    made.at_ns = at.count();
    return made;
}

std::size_t text_bytes(const FailureLedger& ledger) {
    std::size_t sum = 0;
    for (const Failure& kept : ledger.kept()) sum += kept.message.size() + kept.stderr_tail.size();
    return sum;
}

}  // namespace

TEST_CASE("a report that is sent again adds nothing") {
    FailureLedger ledger;
    const auto one = failure(FailureKind::worker_error, 1, 1ms);
    for (int i = 0; i < 2; ++i) ledger.add(one);
    ledger.add(failure(FailureKind::worker_error, 2, 1ms));
    CHECK(ledger.count() == 2);
    // The loss of its node is another event than the failure of a worker with the same numbers.
    auto node = one;
    node.kind = FailureKind::node_lost;
    ledger.add(node);
    CHECK(ledger.count() == 3);
}

TEST_CASE("thousands of failures with whole tails are counted, and a few are kept") {
    FailureLedger ledger;
    const std::vector<char> text(native::stderr_tail_bytes_max, 'e');
    for (std::int32_t rank = 0; rank < 2'000; ++rank) {
        auto one = failure(static_cast<FailureKind>(rank % 4), rank, 1h - rank * 1ms);
        one.stderr_tail.assign(text.begin(), text.end());
        one.message.assign(text.begin(), text.begin() + native::failure_message_bytes_max);
        ledger.add(std::move(one));
    }
    CHECK(ledger.count() == 2'000);
    CHECK(ledger.kept().size() == 4 * FailureLedger::kept_per_kind_max);
    CHECK(text_bytes(ledger) < 1536 * 1024);
    CHECK(ledger.first_cause(500ms).stderr_tail.size() == native::stderr_tail_bytes_max);
}

TEST_CASE("the first cause of those that are kept is that of all, in whatever order they come") {
    std::mt19937 random(5);
    for (int world = 0; world < 200; ++world) {
        FailureLedger ledger;
        std::vector<Failure> all;
        const auto uncertainty = static_cast<std::int64_t>(random() % 50'000'000);
        for (std::int32_t rank = 0; rank < 100; ++rank) {
            auto one =
                failure(static_cast<FailureKind>(random() % 4), rank, std::chrono::microseconds(random() % 900'000));
            one.uncertainty_ns = uncertainty;
            all.push_back(one);
            ledger.add(one);
        }
        CHECK(ledger.first_cause(500ms).rank == first_cause(all, 500ms).rank);
        CHECK(ledger.count() == all.size());
    }
}

TEST_CASE("a failure that is reported last and happened first is the cause") {
    FailureLedger ledger;
    for (std::int32_t rank = 1; rank < 50; ++rank) ledger.add(failure(FailureKind::worker_error, rank, 2s));
    ledger.add(failure(FailureKind::worker_error, 0, 1s));
    CHECK(ledger.first_cause(500ms).rank == 0);
}

}  // namespace muster::rendezvous
