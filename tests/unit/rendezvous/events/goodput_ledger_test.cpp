#include "rendezvous/events/goodput_ledger.h"

#include <cstdlib>
#include <numeric>
#include <random>

#include "rendezvous/base/known_step.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"

using namespace muster;

namespace {

/// A job's story, told with seconds since its start.
struct Story {
    GoodputLedger ledger;
    static Instant at(double second) {
        return Instant(1000s) + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(second));
    }

    void tell(double second, EventKind kind, EventFacts facts = {}) {
        ledger.take({.kind = kind, .text = {}, .facts = std::move(facts)}, at(second));
    }
    /// With the time of steps that is pending.
    [[nodiscard]] double trained(double second) const {
        return std::chrono::duration<double>(ledger.totals(at(second)).trained()).count();
    }
    [[nodiscard]] double of_section(std::string_view name, double second) const {
        const auto totals = ledger.totals(at(second));
        for (auto i = fixed_buckets; i < totals.bucket_count(); ++i)
            if (totals.name_of(i) == name) return std::chrono::duration<double>(totals.buckets[i]).count();
        return -1;
    }
    [[nodiscard]] double of(TimeBucket bucket, double second) const {
        return std::chrono::duration<double>(ledger.totals(at(second)).of(bucket)).count();
    }
};

SectionTimes in_sections(std::vector<std::pair<const char*, double>> seconds) {
    SectionTimes all;
    for (const auto& [name, time] : seconds)
        section_time(all, name) = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(time)).count();
    return all;
}

Duration sum_of(const GoodputLedger::Totals& totals) {
    return std::accumulate(totals.buckets.begin(), totals.buckets.end(), totals.pending);
}

}  // namespace

TEST_CASE("the time of a job with one failure is in the buckets, and the steps after the checkpoint are lost") {
    Story story;
    story.tell(0, EventKind::job_started);
    story.tell(10, EventKind::round_sealed);
    CHECK(std::chrono::duration<double>(story.ledger.totals(Story::at(20)).pending).count() == 10);
    story.tell(30, EventKind::round_stepping, {.step = 1});
    story.tell(130, EventKind::round_ended, {.reason = "worker_failed", .step = 100});
    story.tell(135, EventKind::round_drained, {.checkpoint_step = 80});
    story.tell(140, EventKind::round_sealed);
    story.tell(150, EventKind::round_stepping, {.step = 81, .first_step = 81});
    story.tell(240, EventKind::job_ended, {.outcome = "succeeded"});
    const auto totals = story.ledger.totals(Story::at(999));
    CHECK(totals.wall_clock == 240s);
    CHECK(totals.of(TimeBucket::waiting_nodes) == 15s);
    CHECK(totals.of(TimeBucket::starting) == 30s);
    CHECK(totals.of(TimeBucket::stepping) == 190s);
    CHECK(totals.of(TimeBucket::stopping) == 5s);
    CHECK(totals.lost_step_count == 20);
    CHECK(totals.lost_work == 20s);
    CHECK(totals.failed_round_count == 1);
    CHECK(
        story.ledger.sentence(Story::at(999)) ==
        "70.8 % of 240 s trained; 15 s waiting for nodes, 30 s starting, 5 s stopping, 20 s of work lost (20 steps, 1 "
        "failure)");
}

TEST_CASE("a round without steps is unmeasured once it is over, and no bucket has shrunk") {
    Story story;
    story.tell(0, EventKind::job_started);
    CHECK(story.ledger.sentence(Story::at(0)).empty());
    CHECK(story.ledger.sentence(Story::at(1)) == "no worker ran in 1 s; 1 s waiting for nodes");
    story.tell(1, EventKind::round_sealed);
    CHECK(story.of(TimeBucket::starting, 50) == 0);
    CHECK(story.of(TimeBucket::unmeasured, 50) == 0);
    story.tell(101, EventKind::job_ended, {.outcome = "failed"});
    CHECK(story.of(TimeBucket::unmeasured, 200) == 100);
    CHECK(story.ledger.sentence(Story::at(200)) ==
          "workers ran for 100 s of 101 s and reported no steps; 1 s waiting for nodes");
}

TEST_CASE("a daemon that was restarted in a round counts its steps from the first report") {
    Story story;
    story.tell(10, EventKind::round_stepping, {.step = 50});
    story.tell(40, EventKind::round_ended, {.reason = "node_lost", .step = 79});
    story.tell(41, EventKind::round_drained, {.checkpoint_step = 69});
    CHECK(story.of(TimeBucket::stepping, 41) == 30);
    story.tell(42, EventKind::job_ended, {.outcome = "succeeded"});
    CHECK(story.ledger.totals(Story::at(42)).lost_work == 10s);
}

TEST_CASE("nodes that join or leave are no failure") {
    Story story;
    std::int64_t step = 0;
    for (const char* reason : {"node_joined", "node_left"}) {
        story.tell(0, EventKind::round_sealed);
        story.tell(0, EventKind::round_stepping, {.step = step});
        story.tell(0, EventKind::round_ended, {.reason = reason, .step = step + 5});
        step += 6;
    }
    story.tell(7, EventKind::round_drained, {.checkpoint_step = 5});
    CHECK(story.of(TimeBucket::reconfiguring, 7) == 7);
    CHECK(story.ledger.totals(Story::at(7)).failed_round_count == 0);
    CHECK(story.ledger.totals(Story::at(7)).lost_step_count == 0);
}

TEST_CASE("a failed job loses what is after its checkpoint; nothing counts as lost while the checkpoint is unknown") {
    for (const auto& [checkpoint, lost] : {std::pair{-1, 0}, std::pair{5, 5}, std::pair{10, 0}, std::pair{12, 0}}) {
        Story story;
        story.tell(0, EventKind::round_sealed);
        story.tell(0, EventKind::round_stepping, {.step = 1});
        story.tell(100, EventKind::round_ended, {.reason = "node_lost", .step = 10});
        story.tell(101, EventKind::job_ended, {.outcome = "failed", .checkpoint_step = checkpoint});
        INFO(checkpoint);
        CHECK(story.ledger.totals(Story::at(101)).lost_step_count == lost);
        CHECK(story.ledger.totals(Story::at(101)).lost_work == lost * 10s);
    }
}

TEST_CASE("the next round's first step says what is lost, whatever the newest checkpoint is") {
    for (const auto& [first, lost] :
         {std::pair{1, 10}, std::pair{8, 3}, std::pair{11, 0}, std::pair{20, 0}, std::pair{-1, 0}}) {
        Story story;
        story.tell(0, EventKind::round_sealed);
        story.tell(0, EventKind::round_stepping, {.step = 3, .first_step = 1});
        story.tell(100, EventKind::round_ended, {.reason = "worker_failed", .step = 7});
        story.tell(101, EventKind::round_drained, {.step = 10, .checkpoint_step = 9});
        INFO(first);
        // A round that ends before its first step leaves it open.
        story.tell(102, EventKind::round_sealed);
        story.tell(103, EventKind::round_ended, {.reason = "node_lost"});
        story.tell(104, EventKind::round_drained);
        CHECK(story.ledger.totals(Story::at(104)).lost_step_count == 0);
        story.tell(105, EventKind::round_sealed);
        story.tell(110, EventKind::round_stepping, {.step = first + 5, .first_step = first});
        story.tell(111, EventKind::round_stepping, {.step = 2, .first_step = 2});
        CHECK(story.ledger.totals(Story::at(111)).lost_step_count == lost);
        CHECK(story.ledger.totals(Story::at(111)).lost_work == lost * 10s);
    }
}

TEST_CASE("time that ranks waited for data, or hung, is not stepping, and no bucket shrinks meanwhile") {
    Story story;
    story.tell(0, EventKind::round_sealed);
    story.tell(10, EventKind::round_stepping, {.step = 1, .data_wait_ms = 500});
    CHECK(story.of(TimeBucket::stepping, 20) == 0);  // It is not known yet whether steps were done in it.
    CHECK(story.ledger.totals(Story::at(20)).pending == 10s);
    CHECK(story.trained(20) == 10);
    story.tell(20, EventKind::round_progress, {.step = 11, .data_wait_ms = 2500});
    CHECK(story.of(TimeBucket::data_wait, 20) == 2);
    CHECK(story.of(TimeBucket::stepping, 20) == 8);
    story.tell(30, EventKind::hang_suspected, {.data_wait_ms = 2500});
    CHECK(story.of(TimeBucket::hung, 40) == 10);
    story.tell(40, EventKind::hang_over, {.data_wait_ms = 12'500});  // The wait was a part of the hang.
    story.tell(50, EventKind::round_ended, {.reason = "worker_failed", .step = 20, .data_wait_ms = 99'000});
    CHECK(story.of(TimeBucket::data_wait, 50) == 12);  // No more than there was.
    CHECK(story.of(TimeBucket::stepping, 50) == 18);
    CHECK(story.of(TimeBucket::hung, 50) == 10);
    // The next one measures nothing.
    story.tell(50, EventKind::round_drained);
    story.tell(50, EventKind::round_sealed);
    story.tell(50, EventKind::hang_suspected);
    story.tell(55, EventKind::hang_over);
    story.tell(60, EventKind::round_stepping, {.step = 21});
    CHECK(story.of(TimeBucket::starting, 60) == 20);
    CHECK(story.trained(65) == 23);
    CHECK(story.ledger.sentence(Story::at(65)) ==
          "35.4 % of 65 s trained; 20 s starting, 12 s waiting for data, 10 s hung");
}

TEST_CASE(
    "sections and checkpoints of the slowest rank are no training, and those before the first step are its start") {
    Story story;
    story.tell(0, EventKind::round_sealed);
    story.tell(20, EventKind::round_stepping,
               {.step = 1, .sections = in_sections({{"start-up", 4}, {"checkpoint", 6}})});
    CHECK(story.of(TimeBucket::starting, 20) == 14);
    CHECK(story.of(TimeBucket::loading_checkpoint, 20) == 6);
    const auto say = [&](double second, double checkpoint, double evaluation) {
        story.tell(
            second, EventKind::round_progress,
            {.step = 9,
             .sections = in_sections({{"start-up", 4}, {"checkpoint", checkpoint}, {"evaluation", evaluation}})});
    };
    say(30, 8.5, 3);
    say(40, 8.5, 103);  // No more than there was.
    CHECK(story.of(TimeBucket::checkpoint_blocked, 40) == 2.5);
    CHECK(story.of_section("section:evaluation", 40) == 13);
    CHECK(story.of_section("section:start-up", 40) == -1);
    CHECK(story.of(TimeBucket::stepping, 40) == 4.5);
    // The next round counts its own anew; ten names have nine buckets.
    story.tell(40, EventKind::round_ended, {.reason = "node_joined"});
    story.tell(40, EventKind::round_drained);
    story.tell(40, EventKind::round_sealed);
    story.tell(40, EventKind::round_stepping, {.step = 10, .sections = in_sections({{"start-up", 4}})});
    say(50, 0, 2);
    CHECK(story.of_section("section:evaluation", 50) == 15);
    SectionTimes many;
    for (int i = 0; i < 9; ++i) many.push_back({"s" + std::to_string(i), 1'000'000'000});
    story.tell(60, EventKind::round_progress, {.step = 11, .sections = many});
    CHECK(story.ledger.totals(Story::at(60)).sections.size() == sections_max);
    CHECK(story.of_section("section:s6", 60) == 1);
    CHECK(story.of_section("section:other", 60) == 2);
    CHECK(story.ledger.sentence(Story::at(60)).find("2.5 s blocked by checkpoints, 15 s in section evaluation") !=
          std::string::npos);
}

TEST_CASE("a hang begins with the last step, and a failure before its round's end is being detected from then on") {
    Story story;
    story.tell(0, EventKind::round_sealed);
    story.tell(0, EventKind::round_stepping, {.step = 1});
    story.tell(20, EventKind::round_progress, {.step = 11});
    story.tell(40, EventKind::hang_suspected, {.step = 15, .hung_ms = 12'000});
    CHECK(story.of(TimeBucket::stepping, 40) == 28);
    CHECK(story.of(TimeBucket::hung, 50) == 22);
    // What ends in a hang was seen: its time is hung to the end.
    story.tell(60, EventKind::round_ended, {.reason = "worker_failed", .step = 15, .detecting_ms = 5'000});
    CHECK(story.of(TimeBucket::hung, 60) == 32);
    story.tell(60, EventKind::round_drained);
    story.tell(60, EventKind::round_sealed);
    story.tell(60, EventKind::round_stepping, {.step = 16});
    story.tell(70, EventKind::round_progress, {.step = 20});
    story.tell(80, EventKind::round_ended, {.reason = "node_lost", .step = 21, .detecting_ms = 4'000});
    CHECK(story.of(TimeBucket::detecting, 80) == 4);
    CHECK(story.of(TimeBucket::stepping, 80) == 44);
    CHECK(story.of(TimeBucket::stopping, 85) == 5);
    // Neither begins before the last word that the ranks stepped.
    story.tell(80, EventKind::round_drained);
    story.tell(80, EventKind::round_sealed);
    story.tell(90, EventKind::round_ended, {.reason = "node_lost", .detecting_ms = 400'000});
    CHECK(story.of(TimeBucket::detecting, 90) == 14);
    CHECK(story.of(TimeBucket::unmeasured, 90) == 0);
    CHECK(story.ledger.sentence(Story::at(90)).find("32 s hung, 14 s until failures were known") != std::string::npos);
}

TEST_CASE("a hang that is seen before the first steps of all are is hung from there, until it is over") {
    Story story;
    story.tell(0, EventKind::round_sealed);
    story.tell(5, EventKind::hang_suspected);
    story.tell(10, EventKind::round_stepping, {.step = 1});
    CHECK(story.of(TimeBucket::hung, 20) == 10);
    story.tell(20, EventKind::hang_over);
    CHECK(story.trained(25) == 5);
    story.tell(30, EventKind::hang_suspected);
    story.tell(40, EventKind::round_sealed);
    story.tell(40, EventKind::round_stepping, {.step = 1});
    CHECK(story.of(TimeBucket::hung, 50) == 20);
}

TEST_CASE("what a resumed round had waited for before its daemon knew of it does not count") {
    Story story;
    story.tell(0, EventKind::round_sealed);
    story.tell(0, EventKind::round_stepping, {.step = 1, .data_wait_ms = 100});
    story.ledger = GoodputLedger::from(story.ledger.kept(0s), 0s, Story::at(0));
    story.tell(10, EventKind::round_progress, {.step = 11, .data_wait_ms = 500});
    CHECK(story.of(TimeBucket::stepping, 10) == 10);
    story.tell(20, EventKind::round_progress, {.step = 21, .data_wait_ms = 3500});
    CHECK(story.of(TimeBucket::data_wait, 20) == 3);
    CHECK(story.of(TimeBucket::stepping, 20) == 17);
}

TEST_CASE("steps before a resume have no time in this account, so their share of it is none") {
    Story story;
    story.tell(0, EventKind::round_resumed);
    story.tell(0, EventKind::round_stepping, {.step = 901, .first_step = 1});
    story.tell(100, EventKind::round_ended, {.reason = "node_lost", .step = 1000});
    story.tell(100, EventKind::round_drained, {.checkpoint_step = 949});
    story.tell(100, EventKind::round_sealed);
    story.tell(100, EventKind::round_stepping, {.step = 960, .first_step = 951});
    CHECK(story.ledger.totals(Story::at(100)).lost_step_count == 50);
    CHECK(story.ledger.totals(Story::at(100)).lost_work == 50s);
}

TEST_CASE("steps that no program can have reached are unknown") {
    Story story;
    for (int i = 0; i < 3; ++i) {
        story.tell(i, EventKind::round_sealed);
        story.tell(i, EventKind::round_stepping, {.step = INT64_MAX, .first_step = 0});
        story.tell(i, EventKind::round_ended, {.reason = "node_lost", .step = INT64_MAX});
        story.tell(i, EventKind::round_drained, {.step = step_max, .checkpoint_step = INT64_MAX});
    }
    CHECK(story.ledger.totals(Story::at(3)).lost_step_count == step_max);
    const auto kept = story.ledger.kept(0s);
    CHECK(GoodputLedger::from(kept, 0s, Story::at(3)).kept(0s) == kept);
}

TEST_CASE("a turn that began before the ledger's last event adds no negative time") {
    Story story;
    story.tell(0, EventKind::job_started);
    story.tell(10, EventKind::round_sealed);
    story.tell(20, EventKind::round_stepping, {.step = 1});
    story.tell(19, EventKind::round_ended, {.reason = "worker_failed", .step = 5});
    CHECK(story.of(TimeBucket::stepping, 18) == 0);
    CHECK(story.of(TimeBucket::stopping, 18) == 0);
    CHECK(sum_of(story.ledger.totals(Story::at(18))) == 20s);
    CHECK(story.ledger.totals(Story::at(18)).wall_clock == 20s);
}

TEST_CASE("another run under the same name has its own time") {
    Story story;
    story.tell(0, EventKind::job_started);
    story.tell(10, EventKind::job_ended, {.outcome = "succeeded"});
    story.tell(20, EventKind::node_joined);
    CHECK(story.ledger.totals(Story::at(25)).wall_clock == 10s);
    story.tell(30, EventKind::job_started);
    CHECK(story.ledger.totals(Story::at(35)).wall_clock == 5s);
}

TEST_CASE(
    "the buckets weigh by ranks, of the last round between rounds, and what an elastic job lacks is scaled down") {
    Story story;
    story.tell(0, EventKind::job_started);
    story.tell(10, EventKind::round_sealed, {.rank_count = 16, .rank_count_max = 16});
    story.tell(30, EventKind::round_stepping, {.step = 1});
    story.tell(130, EventKind::round_ended, {.reason = "node_lost", .step = 100});
    story.tell(135, EventKind::round_drained);
    story.tell(140, EventKind::round_sealed, {.rank_count = 12, .rank_count_max = 16});
    story.tell(150, EventKind::round_stepping, {.step = 81});
    const auto of = [](const GoodputLedger::Totals& totals, TimeBucket bucket) {
        return totals.rank_seconds[static_cast<std::size_t>(bucket)];
    };
    const auto totals = story.ledger.totals(Story::at(160));
    CHECK(of(totals, TimeBucket::waiting_nodes) == 5 * 16);  // nobody waits for the first round with ranks
    CHECK(of(totals, TimeBucket::starting) == 20 * 16 + 10 * 12);
    CHECK(of(totals, TimeBucket::stepping) == 100 * 16);
    CHECK(of(totals, TimeBucket::stopping) == 5 * 16);
    CHECK(totals.scaled_down == 10 * 4);
    // A daemon that continues counts from zero, with the ranks of the round.
    auto next = GoodputLedger::from(story.ledger.kept(0s), 0s, Story::at(160));
    next.take({.kind = EventKind::round_progress}, Story::at(170));
    CHECK(next.totals(Story::at(170)).of(TimeBucket::stepping) == 120s);
    CHECK(of(next.totals(Story::at(170)), TimeBucket::stepping) == 10 * 12);
}

TEST_CASE("numbers that no ledger has written give an empty one") {
    Story story;
    story.tell(0, EventKind::round_sealed);
    story.tell(1, EventKind::round_stepping, {.step = 1});
    const auto kept = story.ledger.kept(0s);
    const auto from = [](const GoodputLedger::Kept& all) { return GoodputLedger::from(all, 0s, Story::at(2)); };
    CHECK(from(kept).kept(0s) == kept);
    CHECK(from({}).kept(0s).numbers.empty());
    auto shorter = kept;
    shorter.numbers.pop_back();
    CHECK(from(shorter).kept(0s).numbers.empty());
    for (std::size_t i = 0; i < kept.numbers.size(); ++i)
        for (const std::int64_t wrong : {INT64_MIN, INT64_MAX, std::int64_t{-2}}) {
            auto damaged = kept;
            damaged.numbers[i] = wrong;
            const auto ledger = from(damaged);
            INFO(i << ": " << wrong);
            CHECK(sum_of(ledger.totals(Story::at(3))) >= 0s);  // nothing overflows
        }
}

// MUSTER_TEST_SEEDS=100000 build/release/tests/events_test "whatever happens*" takes 20 s of a core.
TEST_CASE("whatever happens in whatever order, the buckets sum to the wall clock exactly and never shrink") {
    constexpr EventKind kinds[] = {EventKind::job_started,    EventKind::node_joined,    EventKind::round_sealed,
                                   EventKind::round_resumed,  EventKind::round_stepping, EventKind::round_ended,
                                   EventKind::round_drained,  EventKind::node_lost,      EventKind::job_ended,
                                   EventKind::round_progress, EventKind::hang_suspected, EventKind::hang_over};
    constexpr const char* sections[] = {"checkpoint", "evaluation", "start-up", "a", "b", "c", "d", "e", "f", "other"};
    constexpr const char* reasons[] = {"worker_failed", "node_lost", "node_joined", "node_left", "daemon_restarted"};
    const char* const wish = std::getenv("MUSTER_TEST_SEEDS");
    const auto seeds = wish == nullptr ? test::random_cases(20'000UL) : std::strtoul(wish, nullptr, 10);
    for (unsigned seed = 0; seed < seeds; ++seed) {
        std::mt19937 random(seed);
        GoodputLedger ledger;
        Instant now{std::chrono::nanoseconds{random()}};
        GoodputLedger::Totals before;
        bool is_over = false;
        for (int i = 0; i < 30; ++i) {
            now += std::chrono::nanoseconds(random() % 3 == 0 ? 0 : std::uint64_t{random()} * 1000);
            Event event{.kind = kinds[random() % std::size(kinds)]};
            event.facts.reason = reasons[random() % std::size(reasons)];
            event.facts.outcome = random() % 2 == 0 ? "succeeded" : "failed";
            event.facts.step = static_cast<std::int64_t>(random() % 100) - 1;
            event.facts.first_step = static_cast<std::int64_t>(random() % 100) - 1;
            event.facts.checkpoint_step = static_cast<std::int64_t>(random() % 100) - 1;
            event.facts.data_wait_ms = static_cast<std::int64_t>(random() % 3000) - 1;
            event.facts.detecting_ms = static_cast<std::int64_t>(random() % 3000) - 1;
            event.facts.hung_ms = static_cast<std::int64_t>(random() % 3000) - 1;
            for (auto left = random() % 4; left > 0; --left)
                section_time(event.facts.sections, sections[random() % std::size(sections)]) =
                    static_cast<std::int64_t>(random());
            event.facts.queued_ms = static_cast<std::int64_t>(random() % 3000) - 1;
            ledger.take(event, now);
            const auto later = now + std::chrono::nanoseconds(random() % 1000);
            const auto totals = ledger.totals(later);
            const bool starts_anew = is_over && event.kind == EventKind::job_started;
            is_over = event.kind == EventKind::job_ended || (is_over && !starts_anew);
            if (sum_of(totals) != totals.wall_clock || totals.lost_work > totals.of(TimeBucket::stepping)) {
                FAIL("seed " << seed << ", event " << i << ": " << sum_of(totals).count() << " and "
                             << totals.wall_clock.count() << ", lost " << totals.lost_work.count());
            }
            for (std::size_t bucket = 0; bucket < time_buckets_max && !starts_anew; ++bucket)
                if (totals.buckets[bucket] < before.buckets[bucket])
                    FAIL("seed " << seed << ", event " << i << ": bucket " << bucket << " has shrunk");
            before = ledger.totals(now);
            // A daemon on another host continues with the same numbers.
            const auto next = GoodputLedger::from(ledger.kept(1234567s), 1234567s + 99h, now - 99h);
            if (next.kept(1234567s + 99h) != ledger.kept(1234567s) || next.sentence(now - 99h) != ledger.sentence(now))
                FAIL("seed " << seed << ", event " << i << ": a restarted daemon counts otherwise");
        }
    }
}

TEST_CASE("the queue comes before the first agent, and the load of a checkpoint is no part of the start") {
    Story story;
    story.tell(0, EventKind::job_started, {.queued_ms = 90'000});
    CHECK(story.ledger.totals(Story::at(5)).wall_clock == 95s);
    story.tell(10, EventKind::round_sealed);
    story.tell(40, EventKind::round_stepping, {.step = 1, .sections = in_sections({{"checkpoint", 20.5}})});
    CHECK(story.of(TimeBucket::queued, 50) == 90);
    CHECK(story.of(TimeBucket::loading_checkpoint, 50) == 20.5);
    CHECK(story.of(TimeBucket::starting, 50) == 9.5);
    CHECK(story.ledger.sentence(Story::at(50)) ==
          "7.1 % of 140 s trained; 90 s in the queue, 10 s waiting for nodes, 9.5 s starting, 20.5 s loading "
          "checkpoints");
    // No more than there was, and nothing once steps are done.
    story.tell(60, EventKind::round_ended, {.reason = "worker_failed", .step = 10});
    story.tell(60, EventKind::round_drained);
    story.tell(60, EventKind::round_sealed);
    story.tell(61, EventKind::round_stepping, {.step = 11, .sections = in_sections({{"checkpoint", 20.5}})});
    story.tell(70, EventKind::round_stepping, {.step = 12, .sections = in_sections({{"checkpoint", 5}})});
    CHECK(story.of(TimeBucket::loading_checkpoint, 80) == 21.5);
    CHECK(sum_of(story.ledger.totals(Story::at(80))) == story.ledger.totals(Story::at(80)).wall_clock);
    // A second run is not charged with the first one's queue.
    story.tell(80, EventKind::job_ended, {.outcome = "succeeded"});
    story.tell(90, EventKind::job_started);
    CHECK(story.of(TimeBucket::queued, 95) == 0);
    CHECK(story.ledger.totals(Story::at(95)).wall_clock == 5s);
}
