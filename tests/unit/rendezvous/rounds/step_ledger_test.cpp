#include "rendezvous/rounds/ledgers/step_ledger.h"

#include <cmath>
#include <map>

#include "rendezvous/rounds/ledgers/tier_ledger.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;
using native::WorkerPace;
using Hang = StepLedger::Hang;

namespace {

constexpr std::uint64_t ms = 1'000'000;

/// What nodes report, each with its earlier report at hand, as Job has it.
struct Reports {
    StepLedger ledger;
    std::map<Incarnation, std::vector<native::SeenWorker>> before;
    std::uint32_t node_count = 2;

    Reports() { ledger.begin_round(); }
    /// Nodes have two ranks, and report all of them.
    StepLedger::News take(native::WorkersSeen seen) {
        for (const auto& worker : seen.workers)
            ++(worker.pace == WorkerPace::waiting   ? seen.counts.waiting
               : worker.pace == WorkerPace::overdue ? seen.counts.overdue
                                                    : seen.counts.training);
        const auto from = static_cast<Incarnation>(seen.workers.front().at.rank / 2 + 1);
        auto& then = before[from];
        const auto news = ledger.take(from, then, seen, node_count);
        then = seen.workers;
        return news;
    }
    void begin_round() {
        before.clear();
        ledger.begin_round();
    }
};

native::SeenWorker worker(std::int32_t rank, native::StepTally tally, WorkerPace pace = WorkerPace::usual) {
    return {.at = {.rank = rank}, .pace = pace, .tally = tally};
}

bool is_near(const std::optional<double>& value, double expected) {
    return value && std::abs(*value - expected) < 1e-9;
}

Hang hang(Reports& reports, std::int32_t rank, WorkerPace one, WorkerPace other) {
    return reports.take({.workers = {worker(rank, {}, one), worker(rank + 1, {}, other)}}).hang;
}

}  // namespace

TEST_CASE("steps, samples and times are those of rank 0, and grow over rounds and a worker that is started again") {
    Reports reports;
    const auto say = [&](std::uint64_t steps, std::uint64_t in_bucket) {
        native::WorkersSeen seen{
            .workers = {worker(0, {.step_count = steps, .step_ns = steps * 20 * ms, .sample_count = steps * 8}),
                        worker(1, {.step_count = 999, .step_ns = 999, .sample_count = 999})},
            .step_times = std::vector<native::StepTimeCount>(step_time_bucket_count)};
        seen.step_times[3].count = in_bucket;
        reports.take(seen);
        return reports.ledger.summary();
    };
    CHECK_FALSE(reports.ledger.summary().step_seconds);
    say(10, 9);
    auto summary = say(30, 29);
    CHECK(summary.step_count == 30);
    CHECK(summary.sample_count == 240);
    CHECK(summary.step_time == 600ms);
    CHECK(summary.times[3] == 29);
    CHECK(is_near(summary.step_seconds, 0.02));
    CHECK(is_near(summary.samples_per_second, 400));
    reports.begin_round();
    CHECK(say(5, 4).step_count == 35);
    CHECK(say(2, 1).step_count == 37);  // It was started again.
    summary = say(2, 1);
    CHECK(summary.times[3] == 34);
    CHECK(is_near(summary.step_seconds, 0.02));  // No step since: the last known value.
}

TEST_CASE("the median step is where the histogram has half of the steps, over all rounds") {
    Reports reports;
    CHECK_FALSE(reports.ledger.median_step());
    native::WorkersSeen seen{.workers = {worker(0, {.step_count = 9})},
                             .step_times = std::vector<native::StepTimeCount>(step_time_bucket_count)};
    seen.step_times[3].count = 3;  // up to 30 ms
    seen.step_times[5].count = 4;  // 100 to 300 ms
    seen.step_times[9].count = 1;
    reports.take(seen);
    reports.begin_round();
    CHECK(reports.ledger.median_step() == 150ms);
    seen.step_times = std::vector<native::StepTimeCount>(step_time_bucket_count);
    seen.step_times.back().count = 99;
    reports.take(seen);
    CHECK(reports.ledger.median_step() == 30s);  // at least
}

TEST_CASE("of each section the rank counts that was in it longest, and names beyond the most are one") {
    Reports reports;
    reports.take({.workers = {worker(0, {})}, .sections = {{"checkpoint", 5}, {"evaluation", 9}}});
    reports.take({.workers = {worker(2, {})}, .sections = {{"checkpoint", 7}, {"evaluation", 2}}});
    CHECK(reports.ledger.sections() == SectionTimes{{"checkpoint", 7}, {"evaluation", 9}});
    for (std::int64_t i = 0; i < 20; ++i)
        reports.take({.workers = {worker(0, {})}, .sections = {{std::to_string(i), 10 + i}}});
    CHECK(reports.ledger.sections().size() == sections_max);
    CHECK(reports.ledger.sections().back() == SectionTime{"other", 29});
    reports.begin_round();
    CHECK(reports.ledger.sections().empty());
}

TEST_CASE("shares are of the time between two reports, and the slowest rank is the one that the others wait for") {
    Reports reports;
    const auto say = [&](std::uint64_t measured, std::uint64_t exposed, std::uint64_t late) {
        reports.take(
            {.workers = {worker(0, {.measured_ns = measured, .data_wait_ns = 7 * ms, .exposed_ns = exposed})}});
        reports.take({.workers = {worker(2, {.measured_ns = measured, .data_wait_ns = 9 * ms, .late_ns = late})}});
        return reports.ledger.summary();
    };
    CHECK_FALSE(reports.ledger.summary().exposed);
    CHECK(reports.ledger.data_wait_ms() == -1);
    say(100 * ms, 90 * ms, 90 * ms);
    auto summary = say(200 * ms, 110 * ms, 130 * ms);
    CHECK(is_near(summary.exposed, 0.1));         // 20 of 100 ms on one of two ranks
    CHECK(is_near(summary.straggler_cost, 0.2));  // 40 of 100 ms, less the mean of 20
    CHECK(summary.slowest_rank == 2);
    CHECK(reports.ledger.data_wait_ms() == 9);
    summary = say(200 * ms, 110 * ms, 130 * ms);
    CHECK(is_near(summary.exposed, 0.1));
    reports.begin_round();
    CHECK_FALSE(reports.ledger.summary().exposed);
    CHECK(reports.ledger.data_wait_ms() == -1);
}

TEST_CASE("a hang is that ranks wait for one that does nothing, or that all wait") {
    using enum WorkerPace;
    Reports reports;
    CHECK(hang(reports, 0, usual, waiting) == Hang::no_change);
    CHECK(hang(reports, 2, waiting, waiting) == Hang::no_change);  // for rank 0, which works
    CHECK(hang(reports, 0, overdue, waiting) == Hang::suspected);
    CHECK(hang(reports, 0, overdue, waiting) == Hang::no_change);
    CHECK(hang(reports, 0, usual, usual) == Hang::over);
    CHECK(hang(reports, 0, waiting, waiting) == Hang::suspected);
    reports.begin_round();
    CHECK(hang(reports, 0, waiting, waiting) == Hang::no_change);  // The other node has not reported.
    CHECK(hang(reports, 2, usual, overdue) == Hang::suspected);
    reports.begin_round();
    CHECK(hang(reports, 0, overdue, overdue) == Hang::no_change);  // Nobody waits.
}

TEST_CASE("a checkpoint is told once, and again where a later round writes it anew") {
    Reports reports;
    const auto say = [&](std::int64_t step, std::uint64_t failures) {
        return reports.take({.workers = {worker(0, {.checkpoint_step = step, .checkpoint_failure_count = failures})}});
    };
    CHECK(say(-1, 0).checkpoint_step == -1);
    CHECK(say(10, 0).checkpoint_step == 10);
    CHECK(say(10, 2).checkpoint_step == -1);
    CHECK(say(10, 3).checkpoint_failure_count == 1);
    CHECK(reports.ledger.checkpoint_step() == 10);
    CHECK(reports.ledger.summary().checkpoint_failure_count == 3);
    reports.begin_round();
    CHECK(say(10, 0).checkpoint_step == 10);
}

TEST_CASE("what rank 0 has done is counted once, also when reports of its node lack it for a while") {
    Reports reports;
    const native::StepTally tally{.step_count = 30, .step_ns = 600 * ms, .checkpoint_failure_count = 1};
    reports.take({.workers = {worker(0, tally), worker(1, {})}});
    reports.take({.workers = {worker(1, {})}});
    CHECK(reports.take({.workers = {worker(0, tally), worker(1, {})}}).checkpoint_failure_count == 0);
    CHECK(reports.ledger.summary().step_count == 30);
    CHECK(reports.ledger.summary().step_time == 600ms);
}

TEST_CASE("of a round whose beginning the daemon has not seen, the first report of rank 0 counts nothing") {
    Reports reports;
    reports.ledger = {};
    native::WorkersSeen seen{
        .workers = {worker(0, {.step_count = 500, .checkpoint_step = 400, .checkpoint_failure_count = 2})},
        .step_times = std::vector<native::StepTimeCount>(step_time_bucket_count)};
    seen.step_times[3].count = 499;
    auto news = reports.take(seen);
    CHECK(news.checkpoint_step == -1);
    CHECK(news.checkpoint_failure_count == 0);
    CHECK(reports.ledger.checkpoint_step() == 400);
    CHECK(reports.ledger.summary().step_count == 0);
    CHECK(reports.ledger.summary().times[3] == 0);
    seen.workers[0].tally.step_count = 510;
    seen.workers[0].tally.checkpoint_step = 505;
    seen.step_times[3].count = 509;
    CHECK(reports.take(seen).checkpoint_step == 505);
    CHECK(reports.ledger.summary().step_count == 10);
    CHECK(reports.ledger.summary().times[3] == 10);
}

TEST_CASE("a node's new report replaces its last one, whichever ranks it has") {
    using enum WorkerPace;
    Reports reports;
    reports.node_count = 1;
    reports.take({.workers = {worker(0, {}), worker(1, {}, waiting)}});
    CHECK(reports.take({.workers = {worker(1, {}, waiting)}}).hang == Hang::no_change);
    CHECK(reports.take({.workers = {worker(1, {}, overdue)}}).hang == Hang::no_change);  // Nobody waits any more.
    // A second node of a round that has one.
    CHECK(reports.take({.workers = {worker(2, {}, waiting), worker(3, {}, waiting)}}).hang == Hang::no_change);
}

TEST_CASE("of a node with many workers the counts decide whether all wait, and not the few that are listed") {
    using enum WorkerPace;
    StepLedger ledger;
    ledger.begin_round();
    native::WorkersSeen seen;
    for (std::int32_t rank = 0; rank < 16; ++rank) seen.workers.push_back(worker(rank, {}, waiting));
    seen.counts = {.training = 3, .waiting = 16, .section = 1};
    CHECK(ledger.take(1, {}, seen, 1).hang == Hang::no_change);
    seen.counts = {.waiting = 20};
    CHECK(ledger.take(1, {}, seen, 1).hang == Hang::suspected);
    seen.counts = {.training = 1, .waiting = 19};
    CHECK(ledger.take(1, {}, seen, 1).hang == Hang::over);
    // The workers have ended: they are counted as nothing, and do not wait.
    native::WorkersSeen ended{.workers = {worker(20, {})}, .final = true};
    CHECK(ledger.take(2, {}, ended, 2).hang == Hang::no_change);
    seen.counts = {.waiting = 20};
    CHECK(ledger.take(1, {}, seen, 2).hang == Hang::no_change);
}

TEST_CASE("sums of what agents make up do not overflow") {
    Reports reports;
    for (int i = 0; i < 4000; ++i) {
        reports.take({.workers = {worker(0, {.step_count = UINT64_MAX, .step_ns = UINT64_MAX})}});
        reports.take({.workers = {worker(0, {})}});
    }
    CHECK(reports.ledger.summary().step_time == Duration::max());
    CHECK(reports.ledger.summary().step_count == UINT64_MAX);
}

TEST_CASE("a checkpoint in memory is the job's when all nodes have it, and its age counts from then") {
    TierLedger ledger;
    const auto say = [&ledger](std::vector<native::TierSteps> nodes, Instant now) {
        native::TierSteps all;
        for (std::size_t i = 0; i < nodes.size(); ++i) add_node(all, nodes[i], i == 0);
        ledger.take(all, now);
        return ledger.tiers();
    };
    CHECK(say({{.memory = 10}, {}}, Instant(1s))[0].step == -1);
    auto tiers = say({{.memory = 10, .shared = 5}, {.memory = 9}}, Instant(2s));
    CHECK(tiers[0].name == "memory");
    CHECK(tiers[0].step == 9);
    CHECK(tiers[0].since == Instant(2s));
    CHECK(tiers[1].step == -1);
    CHECK(tiers[3].step == 5);
    CHECK(say({{.memory = 10, .shared = 5}, {.memory = 9}}, Instant(3s))[0].since == Instant(2s));
    CHECK(say({{.memory = 10}, {.memory = 10}}, Instant(4s))[0].since == Instant(4s));
    // A round that has not saved yet leaves what is known, and of an older one the age is unknown.
    CHECK(say({{}, {}}, Instant(5s))[0].step == 10);
    CHECK(say({{.memory = 7}, {.memory = 7}}, Instant(6s))[0].step == 7);
    CHECK_FALSE(ledger.tiers()[0].since);
    CHECK(ledger.tiers()[3].step == 5);
}

TEST_CASE("the age of a checkpoint that a new daemon hears of is unknown until the next one") {
    TierLedger ledger;
    ledger.resume();
    ledger.take({.memory = 40}, Instant(1s));
    ledger.take({.memory = 40, .shared = 30}, Instant(2s));
    CHECK(ledger.tiers()[0].step == 40);
    CHECK_FALSE(ledger.tiers()[0].since);
    CHECK(ledger.tiers()[3].step == 30);
    CHECK_FALSE(ledger.tiers()[3].since);
    ledger.take({.memory = 50, .shared = 30}, Instant(3s));
    CHECK(ledger.tiers()[0].since == Instant(3s));
    CHECK_FALSE(ledger.tiers()[3].since);
}

TEST_CASE("a lost node leaves the shared directory alone") {
    TierLedger ledger;
    ledger.take({.memory = 40, .neighbour = 40, .local = 30, .shared = 20}, Instant(1s));
    ledger.lose_node();
    for (std::size_t i = 0; i < 3; ++i) CHECK(ledger.tiers()[i].step == -1);
    CHECK(ledger.tiers()[3].step == 20);
    CHECK(ledger.tiers()[3].since == Instant(1s));
    ledger.take({.memory = 40, .local = 31}, Instant(2s));
    CHECK(ledger.tiers()[0].step == 40);
    CHECK_FALSE(ledger.tiers()[0].since);  // it was loaded
    CHECK(ledger.tiers()[2].since == Instant(2s));
}
