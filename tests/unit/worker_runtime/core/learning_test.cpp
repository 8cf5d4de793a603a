// What the reducer learns from the steps that it saw: the order of gradients, and which parameters are in use.
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/arithmetic/near.h"
#include "tests/unit/worker_runtime/reducer/random_model.h"
#include "worker_runtime/core/order_learner.h"
#include "worker_runtime/core/used_parameters.h"

using namespace muster;
using namespace muster::runtime;
using muster::test::near;
using muster::test::RandomModel;

namespace {

constexpr BucketCaps ten_buckets{.first_bytes = 640, .cap_bytes = 640, .last_bytes = 0};

std::vector<Parameter> hundred_lines() {
    std::vector<Parameter> parameters(100);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i] = {.name = "p" + std::to_string(i), .shape = {16}, .type = DataType::f32};
    }
    return parameters;
}

std::vector<std::int32_t> forward() {
    std::vector<std::int32_t> order(100);
    std::iota(order.begin(), order.end(), 0);
    return order;
}

BucketPlan plan_by(std::vector<std::int32_t> order, std::size_t rare_count = 0) {
    return plan_buckets(hundred_lines(), {.parameters = std::move(order), .rare_count = rare_count}, ten_buckets);
}

std::vector<std::int32_t> swapped_halves() {
    auto order = forward();
    std::rotate(order.begin(), order.begin() + 50, order.end());
    return order;
}

}  // namespace

TEST_CASE("lateness is the mean share of the pass after which bytes can be launched") {
    CHECK(near(lateness(plan_by(forward()), forward()), 0.55));  // 10 %, 20 % ... 100 %
    auto backward = forward();
    std::reverse(backward.begin(), backward.end());
    CHECK(near(lateness(plan_by(forward()), backward), 1.0));
    // A parameter that never comes holds everything back.
    auto incomplete = forward();
    incomplete.erase(incomplete.begin());
    CHECK(near(lateness(plan_by(forward()), incomplete), 1.0));
    // A rare one does not.
    auto rare_last = forward();
    const std::span<const std::int32_t> marked(rare_last);
    CHECK(near(lateness(plan_by(rare_last, 10), marked.first(90)), (1.0 + 9) / 2 / 9));
    std::rotate(rare_last.begin(), rare_last.end() - 10, rare_last.end());
    CHECK(near(lateness(plan_by(forward(), 10), rare_last), (1.0 + 9) / 2 / 9));
}

TEST_CASE("the first pass in another order asks for new buckets at once, one in the planned order for none") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    auto order = forward();
    std::swap(order[3], order[4]);
    CHECK(learner.observe(plan_by(forward()), order));
    CHECK(learner.order() == order);
    OrderLearner content(hundred_lines(), ten_buckets);
    CHECK_FALSE(content.observe(plan_by(forward()), forward()));
    CHECK_FALSE(content.observe(plan_by(forward()), order));
}

TEST_CASE("a pass in which nothing was marked is not the first one: it says nothing of the order") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    CHECK_FALSE(learner.observe(plan_by(forward()), {}));
    CHECK(learner.observe(plan_by(forward()), swapped_halves()));
}

TEST_CASE("parameters that the first pass did not mark come last, and rare ones stay last") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    auto order = forward();
    order.erase(order.begin() + 7);
    CHECK(learner.observe(plan_by(forward()), order));
    CHECK(learner.order().back() == 7);
    OrderLearner other(hundred_lines(), ten_buckets);
    auto with_rare = forward();  // 98 and 99 are rare, and 99 was used first
    std::rotate(with_rare.begin(), with_rare.end() - 1, with_rare.end());
    CHECK(other.observe(plan_by(forward(), 2), with_rare));
    CHECK(other.order() == std::vector<std::int32_t>([] {
              auto expected = forward();
              std::swap(expected[98], expected[99]);
              return expected;
          }()));
}

TEST_CASE("an order that has drifted for good asks once it has stood for three passes, and each time for more") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    learner.observe(plan_by(forward()), forward());
    auto present = forward();
    auto other = swapped_halves();
    for (const int patience : {3, 6, 12, 24}) {
        int passes = 1;
        while (!learner.observe(plan_by(present), other)) REQUIRE(++passes < 100);
        CHECK(passes == 1 + patience);
        CHECK(learner.order() == other);
        std::swap(present, other);
    }
}

TEST_CASE("patience has a limit, at which what was learned can still be kept and given back") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    learner.observe(plan_by(forward()), forward());
    auto present = forward();
    auto other = swapped_halves();
    UsedParameters parameters(1);
    int passes = 0;
    int steps = 0;
    for (int change = 0; change < 11; ++change) {  // the tenth is after 3 x 2^9 passes, were there no limit
        for (passes = 1; !learner.observe(plan_by(present), other); ++passes) REQUIRE(passes < 4000);
        for (steps = 1; !parameters.observe({change % 2 != 0}); ++steps) REQUIRE(steps < 4000);
        std::swap(present, other);
    }
    CHECK(passes == 1 + OrderLearner::patience_max);
    CHECK(steps == UsedParameters::patience_max);
    CHECK(OrderLearner(hundred_lines(), ten_buckets).restore(learner.state()));
    CHECK(UsedParameters(1).restore(parameters.state()));
}

TEST_CASE("what was learned is given back whole, at whatever moment it was kept") {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        RandomModel random(seed);
        const std::size_t rare_count = seed % 2 == 0 ? 0 : 10;
        const auto pass = [&](std::vector<std::int32_t> order) {
            order.resize(order.size() - rare_count);
            return order;
        };
        OrderLearner learner(hundred_lines(), ten_buckets);
        UsedParameters parameters(3);
        auto present = forward();
        auto other = forward();
        std::rotate(other.begin(), other.begin() + 45, other.end() - 10);  // where some are rare: 90 to 99
        for (int step = 0; step < 60; ++step) {
            OrderLearner again(hundred_lines(), ten_buckets);
            UsedParameters used(3);
            REQUIRE(again.restore(learner.state()));
            REQUIRE(used.restore(parameters.state()));
            REQUIRE(again.state() == learner.state());
            REQUIRE(used.state() == parameters.state());
            REQUIRE(used.rare() == parameters.rare());
            const auto plan = plan_by(present, rare_count);
            const auto order = pass(random.chance(80) ? other : random.chance(50) ? present : forward());
            const std::vector<bool> now{random.chance(10), random.chance(90), true};
            const bool asks = learner.observe(plan, order);
            REQUIRE(again.observe(plan, order) == asks);
            REQUIRE(again.order() == learner.order());
            REQUIRE(used.observe(now) == parameters.observe(now));
            if (asks) std::swap(present, other);
        }
    }
}

TEST_CASE("a pass in between that is not in the drifted order starts the count anew") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    const auto plan = plan_by(forward());
    learner.observe(plan, forward());
    for (const int passes : {3, 3}) {
        for (int i = 0; i < passes; ++i) CHECK_FALSE(learner.observe(plan, swapped_halves()));
        CHECK_FALSE(learner.observe(plan, RandomModel(1).shuffled(100)));
    }
}

TEST_CASE("an order that changes with every pass, or alternates, or differs between neighbours asks for nothing") {
    OrderLearner learner(hundred_lines(), ten_buckets);
    const auto plan = plan_by(forward());
    learner.observe(plan, forward());
    RandomModel random(11);
    for (int pass = 0; pass < 300; ++pass) CHECK_FALSE(learner.observe(plan, random.shuffled(100)));
    for (int pass = 0; pass < 100; ++pass) {
        CHECK_FALSE(learner.observe(plan, pass % 2 == 0 ? forward() : swapped_halves()));
    }
    for (int pass = 0; pass < 100; ++pass) {
        auto noisy = forward();
        const auto at = random.number(0, 98);
        std::swap(noisy[at], noisy[at + 1]);
        CHECK_FALSE(learner.observe(plan, noisy));
    }
}

TEST_CASE("new buckets in the observed order are never later than the old ones") {
    for (std::uint32_t seed = 1; seed <= 500; ++seed) {
        INFO("seed " << seed);
        RandomModel random(seed);
        const auto order = random.shuffled(100);
        CHECK(lateness(plan_by(order), order) <= lateness(plan_by(random.shuffled(100)), order) + 1e-9);
    }
}

TEST_CASE("a parameter is rare after three unused steps running, and regular after as many used ones, then slower") {
    UsedParameters parameters(2);
    const auto steps = [&](bool used) {
        int count = 1;
        while (!parameters.observe({true, used})) REQUIRE(++count < 100);
        return count;
    };
    CHECK(steps(false) == 3);
    CHECK(parameters.rare() == std::vector<bool>{false, true});
    CHECK(steps(true) == 6);
    CHECK(parameters.rare() == std::vector<bool>{false, false});
    CHECK(steps(false) == 12);
}

TEST_CASE("a parameter that is used now and then stays what it is") {
    UsedParameters parameters(1);
    for (int step = 0; step < 100; ++step) CHECK_FALSE(parameters.observe({step % 3 == 2}));
}
