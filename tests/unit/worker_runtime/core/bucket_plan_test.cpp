#include "worker_runtime/core/bucket_plan.h"

#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/random_model.h"
#include "worker_runtime/core/registration.h"

using namespace muster;
using namespace muster::runtime;
using muster::test::RandomModel;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

Parameter f32(std::string name, std::size_t bytes) {
    return {.name = std::move(name), .shape = {static_cast<std::int64_t>(bytes / 4)}, .type = DataType::f32};
}

/// The parameters of each bucket: "4 3 | 2 | 1 0".
std::string told(const BucketPlan& plan) {
    std::string text;
    for (const auto& bucket : plan.buckets) {
        if (!text.empty()) text += " |";
        if (bucket.rare) text += " rare:";
        for (const auto parameter : bucket.parameters) text += " " + std::to_string(parameter);
    }
    return text;
}

std::size_t padded(const Parameter& parameter) {
    return std::max<std::size_t>((element_count(parameter) * size_of(parameter.type) + 63) / 64 * 64, 64);
}

std::size_t index(std::int32_t parameter) {
    return static_cast<std::size_t>(parameter);
}

struct Case {
    explicit Case(std::uint32_t seed) : random(seed), parameters(random.parameters()), caps(random.caps()) {
        order = random.order(parameters.size());
        plan = plan_buckets(parameters, order, caps);
        for (std::size_t i = 0; i < order.parameters.size(); ++i) position[index(order.parameters[i])] = i;
    }
    RandomModel random;
    std::vector<Parameter> parameters;
    BucketCaps caps;
    ParameterOrder order;
    BucketPlan plan;
    std::vector<std::size_t> position = std::vector<std::size_t>(parameters.size());
};

template <class Check>
void for_random_cases(Check check) {
    for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
        INFO("seed " << seed);
        Case one(seed);
        check(one);
    }
}

}  // namespace

TEST_CASE("buckets are filled from the last parameter to the first, the first bucket and the last one small") {
    std::vector<Parameter> parameters;
    for (int i = 0; i < 10; ++i) parameters.push_back(f32("p" + std::to_string(i), mib / 2));
    const BucketCaps caps{.first_bytes = mib, .cap_bytes = 2 * mib, .last_bytes = mib / 2};
    CHECK(told(plan_buckets(parameters, reverse_order(10), caps)) == " 9 8 | 7 6 5 4 | 3 2 1 | 0");
}

TEST_CASE("a tensor larger than the cap gets a bucket of its own") {
    const std::vector<Parameter> parameters{f32("a", mib), f32("b", 8 * mib), f32("c", mib), f32("d", mib)};
    const BucketCaps caps{.first_bytes = mib, .cap_bytes = 4 * mib, .last_bytes = 0};
    CHECK(told(plan_buckets(parameters, reverse_order(4), caps)) == " 3 | 2 | 1 | 0");
}

TEST_CASE("each data type has buckets of its own, sorted by when their last parameter comes") {
    std::vector<Parameter> parameters{f32("a", 64), f32("b", 64), f32("c", 64), f32("d", 64)};
    parameters[1].type = DataType::f16;
    parameters[2].type = DataType::f16;
    CHECK(told(plan_buckets(parameters, reverse_order(4), {})) == " 2 1 | 3 0");
}

TEST_CASE("rare parameters lie in buckets of their own, after all others") {
    std::vector<Parameter> parameters;
    for (int i = 0; i < 5; ++i) parameters.push_back(f32("p" + std::to_string(i), 64));
    const ParameterOrder order{.parameters = {4, 2, 0, 3, 1}, .rare_count = 2};
    const auto plan = plan_buckets(parameters, order, {});
    CHECK(told(plan) == " 4 2 0 | rare: 3 1");
    CHECK(plan.regular_count == 1);
}

TEST_CASE("whatever the model, each parameter lies in exactly one bucket of its type, aligned, beside no other") {
    for_random_cases([](const Case& one) {
        std::vector<int> seen(one.parameters.size());
        std::size_t arena_end = 0;
        for (std::size_t b = 0; b < one.plan.buckets.size(); ++b) {
            const auto& bucket = one.plan.buckets[b];
            REQUIRE(bucket.start_bytes % 4096 == 0);
            REQUIRE(bucket.start_bytes >= arena_end);
            REQUIRE(bucket.size_bytes > 0);
            REQUIRE(bucket.size_bytes % (64 * one.caps.pieces) == 0);
            arena_end = bucket.start_bytes + bucket.size_bytes;
            std::size_t end = 0;
            for (const auto parameter : bucket.parameters) {
                const auto& place = one.plan.places[index(parameter)];
                ++seen[index(parameter)];
                REQUIRE(place.bucket == static_cast<std::int32_t>(b));
                REQUIRE(place.offset_bytes % 64 == 0);
                REQUIRE(place.offset_bytes >= end);
                REQUIRE(place.count == element_count(one.parameters[index(parameter)]));
                REQUIRE(one.parameters[index(parameter)].type == bucket.type);
                end = place.offset_bytes + place.count * size_of(bucket.type);
            }
            REQUIRE(end <= bucket.size_bytes);
        }
        REQUIRE(arena_end <= one.plan.arena_bytes);
        REQUIRE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    });
}

TEST_CASE("whatever the model, only a single tensor passes a cap, and no bucket could have taken the next tensor too") {
    for_random_cases([](const Case& one) {
        std::size_t seen_types = 0;
        for (std::size_t b = 0; b < one.plan.buckets.size(); ++b) {
            const auto& bucket = one.plan.buckets[b];
            std::size_t bytes = 0;
            for (const auto parameter : bucket.parameters) bytes += padded(one.parameters[index(parameter)]);
            const bool first = (seen_types & std::size_t{1} << static_cast<int>(bucket.type)) == 0 && !bucket.rare;
            if (!bucket.rare) seen_types |= std::size_t{1} << static_cast<int>(bucket.type);
            const auto cap = first ? std::min(one.caps.first_bytes, one.caps.cap_bytes) : one.caps.cap_bytes;
            if (bucket.parameters.size() > 1) REQUIRE(bytes <= cap);
            // Greedy: only the last regular bucket is cut short of its cap, to be small itself.
            const auto next = std::find_if(
                one.plan.buckets.begin() + static_cast<std::ptrdiff_t>(b) + 1, one.plan.buckets.end(),
                [&](const PlannedBucket& later) { return later.type == bucket.type && later.rare == bucket.rare; });
            if (next == one.plan.buckets.end()) continue;
            std::size_t next_bytes = 0;
            for (const auto parameter : next->parameters) next_bytes += padded(one.parameters[index(parameter)]);
            const bool cut =
                next + 1 == one.plan.buckets.begin() + static_cast<std::ptrdiff_t>(one.plan.regular_count) &&
                next_bytes <= one.caps.last_bytes;
            if (!cut) REQUIRE(bytes + padded(one.parameters[index(next->parameters.front())]) > cap);
        }
    });
}

TEST_CASE("whatever the model, buckets follow the order, and the rare ones come last") {
    for_random_cases([](const Case& one) {
        std::size_t last_end = 0;
        for (std::size_t b = 0; b < one.plan.buckets.size(); ++b) {
            const auto& bucket = one.plan.buckets[b];
            REQUIRE(bucket.rare == (b >= one.plan.regular_count));
            for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
                const auto position = one.position[index(bucket.parameters[i])];
                REQUIRE(bucket.rare == (position >= one.parameters.size() - one.order.rare_count));
                if (i > 0) REQUIRE(one.position[index(bucket.parameters[i - 1])] < position);
            }
            const auto end = one.position[index(bucket.parameters.back())];
            if (b > 0) REQUIRE(end > last_end);
            last_end = end;
        }
    });
}

TEST_CASE("the same input gives the same plan; any change of the input that changes the plan changes the hash") {
    for_random_cases([](Case& one) {
        REQUIRE(plan_buckets(one.parameters, one.order, one.caps).hash == one.plan.hash);
        auto renamed = one.parameters;
        renamed[one.random.number(0, renamed.size() - 1)].name += "x";
        REQUIRE(plan_buckets(renamed, one.order, one.caps).hash != one.plan.hash);
        auto grown = one.parameters;
        grown[one.random.number(0, grown.size() - 1)].shape.push_back(2);
        REQUIRE(plan_buckets(grown, one.order, one.caps).hash != one.plan.hash);
        auto retyped = one.parameters;
        auto& type = retyped[one.random.number(0, retyped.size() - 1)].type;
        type = type == DataType::bf16 ? DataType::f16 : DataType::bf16;
        REQUIRE(plan_buckets(retyped, one.order, one.caps).hash != one.plan.hash);
        auto other = one.order;
        std::reverse(other.parameters.begin(), other.parameters.end());
        const auto changed = plan_buckets(one.parameters, other, one.caps);
        REQUIRE((changed.hash == one.plan.hash) == (told(changed) == told(one.plan)));
    });
}

TEST_CASE("plans that differ only in what is rare have different hashes: they run different collectives") {
    const std::vector<Parameter> parameters{f32("a", 64), f32("b", 64)};
    const BucketCaps caps{.first_bytes = 64, .cap_bytes = 64, .last_bytes = 64};
    const auto all = plan_buckets(parameters, {.parameters = {1, 0}, .rare_count = 0}, caps);
    const auto some = plan_buckets(parameters, {.parameters = {1, 0}, .rare_count = 1}, caps);
    CHECK(told(all) == " 1 | 0");
    CHECK(told(some) == " 1 | rare: 0");
    CHECK(all.arena_bytes == some.arena_bytes);
    CHECK(all.hash != some.hash);
}

TEST_CASE("an order travels whole, and nothing else passes for one") {
    RandomModel random(7);
    for (int i = 0; i < 200; ++i) {
        const auto order = random.order(random.number(1, 40));
        const auto bytes = encode(order);
        const auto count = order.parameters.size();
        REQUIRE(bytes.size() == encoded_order_bytes(count));
        const auto read = decode_order(bytes, count);
        REQUIRE(read.has_value());
        REQUIRE(read->parameters == order.parameters);
        REQUIRE(read->rare_count == order.rare_count);
        REQUIRE_FALSE(decode_order(bytes, count + 1).has_value());
        REQUIRE_FALSE(decode_order(bytes.substr(0, bytes.size() - 1), count).has_value());
        auto damaged = bytes;
        damaged[4] = static_cast<char>(damaged[4] ^ 64);  // an index that is out of range or there twice
        REQUIRE_FALSE(decode_order(damaged, count).has_value());
    }
    CHECK_FALSE(decode_order("", 1).has_value());
    CHECK_FALSE(decode_order(encode(ParameterOrder{.parameters = {0, 0}, .rare_count = 0}), 2).has_value());
    CHECK_FALSE(decode_order(encode(ParameterOrder{.parameters = {1, 0}, .rare_count = 3}), 2).has_value());
}
