#include "worker_runtime/core/bucket_schedule.h"

#include <mutex>
#include <thread>

#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/random_model.h"

using namespace muster;
using namespace muster::runtime;
using muster::test::RandomModel;

namespace {

/// `count` parameters of one line each, `per_bucket` in a bucket, registered so that parameter 0 is expected first.
BucketPlan even_plan(std::size_t count, std::size_t per_bucket, std::size_t rare_count = 0) {
    std::vector<Parameter> parameters(count);
    ParameterOrder order{.parameters = {}, .rare_count = rare_count};
    for (std::size_t i = 0; i < count; ++i) {
        parameters[i] = {.name = "p" + std::to_string(i), .shape = {16}, .type = DataType::f32};
        order.parameters.push_back(static_cast<std::int32_t>(i));
    }
    return plan_buckets(parameters, order,
                        {.first_bytes = 64 * per_bucket, .cap_bytes = 64 * per_bucket, .last_bytes = 0});
}

}  // namespace

TEST_CASE("a bucket is launched once it and all before it are complete, the last one at the end of the pass") {
    BucketSchedule schedule(even_plan(6, 2));
    schedule.begin_pass();
    CHECK(schedule.mark_ready(2) == Marked::noted);
    CHECK(schedule.mark_ready(3) == Marked::bucket_complete);
    CHECK(schedule.take_launchable().empty());
    CHECK(schedule.mark_ready(1) == Marked::noted);
    CHECK(schedule.mark_ready(0) == Marked::bucket_complete);
    CHECK(schedule.take_launchable() == BucketRange{0, 2});
    schedule.mark_ready(4);
    CHECK(schedule.mark_ready(5) == Marked::bucket_complete);
    CHECK(schedule.take_launchable().empty());
    CHECK(schedule.end_pass() == BucketRange{2, 3});
    CHECK(std::vector<std::int32_t>(schedule.observed().begin(), schedule.observed().end()) ==
          std::vector<std::int32_t>{2, 3, 1, 0, 4, 5});
}

TEST_CASE("what is marked twice is told apart in each pass anew") {
    BucketSchedule schedule(even_plan(4, 2));
    for (int pass = 0; pass < 3; ++pass) {
        schedule.begin_pass();
        CHECK_FALSE(schedule.is_ready(1));
        CHECK(schedule.mark_ready(1) == Marked::noted);
        CHECK(schedule.is_ready(1));
        CHECK(schedule.mark_ready(1) == Marked::twice);
        CHECK(schedule.mark_ready(0) == Marked::bucket_complete);
        CHECK(schedule.mark_ready(0) == Marked::twice);
        CHECK(schedule.take_launchable() == BucketRange{0, 1});
        CHECK(schedule.end_pass() == BucketRange{1, 2});
        CHECK(schedule.observed().size() == 2);
    }
}

TEST_CASE("a parameter that is never ready holds back its bucket and those after it until the end") {
    BucketSchedule schedule(even_plan(6, 2));
    schedule.begin_pass();
    for (const std::int32_t parameter : {0, 1, 3, 4, 5}) schedule.mark_ready(parameter);
    CHECK(schedule.take_launchable() == BucketRange{0, 1});
    CHECK(schedule.end_pass() == BucketRange{1, 3});
    CHECK_FALSE(schedule.is_ready(2));
}

TEST_CASE("rare buckets hold back none, and are never launched by marks") {
    BucketSchedule schedule(even_plan(6, 2, 2));
    schedule.begin_pass();
    CHECK(schedule.mark_ready(4) == Marked::noted);
    CHECK(schedule.mark_ready(5) == Marked::bucket_complete);
    for (const std::int32_t parameter : {0, 1, 2, 3}) schedule.mark_ready(parameter);
    CHECK(schedule.take_launchable() == BucketRange{0, 1});
    CHECK(schedule.end_pass() == BucketRange{1, 2});
}

TEST_CASE(
    "whatever the order of the marks, buckets are launched once each, in plan order, never before they are whole") {
    for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
        INFO("seed " << seed);
        RandomModel random(seed);
        const auto parameters = random.parameters();
        const auto plan = plan_buckets(parameters, random.order(parameters.size()), random.caps());
        BucketSchedule schedule(plan);
        for (int pass = 0; pass < 2; ++pass) {
            schedule.begin_pass();
            auto order = random.shuffled(parameters.size());
            order.resize(random.chance(60) ? order.size() : random.number(0, order.size()));
            std::vector<bool> ready(parameters.size());
            std::size_t launched = 0;
            const auto whole = [&](std::size_t bucket) {
                const auto& members = plan.buckets[bucket].parameters;
                return std::all_of(members.begin(), members.end(),
                                   [&](std::int32_t each) { return ready[static_cast<std::size_t>(each)]; });
            };
            for (const auto parameter : order) {
                ready[static_cast<std::size_t>(parameter)] = true;
                const auto bucket = static_cast<std::size_t>(plan.places[static_cast<std::size_t>(parameter)].bucket);
                REQUIRE(schedule.mark_ready(parameter) == (whole(bucket) ? Marked::bucket_complete : Marked::noted));
                const auto range = schedule.take_launchable();
                REQUIRE(range.begin == launched);
                for (; launched < range.end; ++launched) REQUIRE(whole(launched));
                // Nothing is held back for longer than it must.
                REQUIRE((launched + 1 >= plan.regular_count || !whole(launched)));
            }
            const auto rest = schedule.end_pass();
            REQUIRE(rest.begin == launched);
            REQUIRE(rest.end == plan.regular_count);
            REQUIRE(std::equal(order.begin(), order.end(), schedule.observed().begin(), schedule.observed().end()));
            for (std::size_t i = 0; i < ready.size(); ++i) {
                REQUIRE(schedule.is_ready(static_cast<std::int32_t>(i)) == ready[i]);
            }
        }
    }
}

TEST_CASE("marks from several threads are all seen, and each bucket is launched once") {
    constexpr std::size_t count = 400;
    const auto plan = even_plan(count, 5);
    BucketSchedule schedule(plan);
    std::vector<int> gradients(count);
    for (int pass = 1; pass <= 50; ++pass) {
        schedule.begin_pass();
        std::mutex mutex;
        std::size_t launched = 0;
        bool good = true;
        const auto mark = [&](std::size_t first) {
            for (std::size_t i = first; i < count; i += 3) {
                gradients[i] = pass;
                if (schedule.mark_ready(static_cast<std::int32_t>(i)) != Marked::bucket_complete) continue;
                const std::lock_guard lock(mutex);
                const auto range = schedule.take_launchable();
                good = good && range.begin == launched;
                launched = range.end;
                // Reads what other threads wrote before they marked it: a race unless marking orders them.
                for (std::size_t b = range.begin; b < range.end; ++b) {
                    for (const auto parameter : plan.buckets[b].parameters) {
                        good = good && gradients[static_cast<std::size_t>(parameter)] == pass;
                    }
                }
            }
        };
        std::thread second(mark, 1);
        std::thread third(mark, 2);
        mark(0);
        second.join();
        third.join();
        CHECK(good);
        CHECK(launched == plan.regular_count - 1);
        CHECK(schedule.end_pass() == BucketRange{plan.regular_count - 1, plan.regular_count});
        CHECK(schedule.observed().size() == count);
    }
}
