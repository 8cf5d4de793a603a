#include "muster/elastic_sampler.h"

#include <set>

#include "muster/distributed_sampler.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;

namespace {

using Indices = std::vector<std::uint64_t>;

constexpr std::uint64_t huge = std::uint64_t{1} << 62;

ElasticSampler made(const ElasticSamplerOptions& options) {
    auto sampler = ElasticSampler::make(options);
    REQUIRE(sampler.has_value());
    return std::move(*sampler);
}

std::string sentence(const ElasticSamplerOptions& options) {
    const auto sampler = ElasticSampler::make(options);
    return sampler ? "no error" : sampler.error().context;
}

Indices taken(const ElasticSampler& sampler, Taker taker) {
    return *sampler.indices(sampler.next(), taker);
}

}  // namespace

TEST_CASE("a step is the same until it is committed") {
    auto sampler = made({.sample_count = 10, .batch_size = 4});
    const auto step = sampler.next();
    CHECK(step == SampleStep{.epoch = 0, .first = 0, .count = 4, .ends_epoch = false});
    const auto indices = *sampler.indices(step, {});
    CHECK(sampler.next() == step);
    CHECK(*sampler.indices(step, {}) == indices);
    REQUIRE(sampler.commit(step).has_value());
    CHECK(sampler.cursor() == 4);
    CHECK(taken(sampler, {}) != indices);
}

TEST_CASE("the last step of an epoch is short, filled up or left out") {
    const ElasticSamplerOptions options{.sample_count = 10, .batch_size = 4, .order = SampleOrder::sequential};
    for (const auto tail : {Tail::short_batch, Tail::pad, Tail::drop}) {
        auto own = options;
        own.tail = tail;
        auto sampler = made(own);
        std::vector<Indices> steps;
        while (sampler.epoch() == 0) {
            const auto step = sampler.next();
            steps.push_back(*sampler.indices(step, {}));
            CHECK(step.ends_epoch == (sampler.steps_left() == 1));
            REQUIRE(sampler.commit(step).has_value());
        }
        CHECK(sampler.cursor() == 0);
        std::vector<Indices> expected{{0, 1, 2, 3}, {4, 5, 6, 7}};
        if (tail == Tail::short_batch) expected.push_back({8, 9});
        if (tail == Tail::pad) expected.push_back({8, 9, 0, 1});
        CHECK(steps == expected);
        CHECK(sampler.steps_per_epoch() == expected.size());
    }
}

TEST_CASE("a batch larger than the data repeats it, or is short") {
    auto sampler = made({.sample_count = 3, .batch_size = 8, .order = SampleOrder::sequential, .tail = Tail::pad});
    CHECK(taken(sampler, {}) == Indices{0, 1, 2, 0, 1, 2, 0, 1});
    CHECK(sampler.next().ends_epoch);
    CHECK(taken(made({.sample_count = 3, .batch_size = 8, .order = SampleOrder::sequential}), {}) == Indices{0, 1, 2});
}

TEST_CASE("shares differ by at most one sample, and may be empty") {
    for (const auto deal : {Deal::strided, Deal::contiguous}) {
        const auto sampler =
            made({.sample_count = 100, .batch_size = 7, .order = SampleOrder::sequential, .deal = deal});
        for (int world = 1; world <= 9; ++world) {
            Indices together;
            for (int rank = 0; rank < world; ++rank) {
                const auto own = taken(sampler, {.rank = rank, .world = world});
                CHECK(own.size() >= 7U / static_cast<unsigned>(world));
                CHECK(own.size() <= (7U + static_cast<unsigned>(world) - 1) / static_cast<unsigned>(world));
                together.insert(together.end(), own.begin(), own.end());
            }
            if (deal == Deal::contiguous) CHECK(together == Indices{0, 1, 2, 3, 4, 5, 6});
            CHECK(std::set<std::uint64_t>(together.begin(), together.end()).size() == 7);
            CHECK(together.size() == 7);
        }
    }
    const auto sampler = made({.sample_count = 100, .batch_size = 7, .order = SampleOrder::sequential});
    CHECK(taken(sampler, {.rank = 1, .world = 3}) == Indices{1, 4});
    const auto in_runs =
        made({.sample_count = 100, .batch_size = 7, .order = SampleOrder::sequential, .deal = Deal::contiguous});
    CHECK(taken(in_runs, {.rank = 1, .world = 3}) == Indices{2, 3});
}

TEST_CASE("in a world that stays, every rank's samples are those of torch's sampler") {
    constexpr int world = 3;
    constexpr std::uint64_t own_batch = 5, count = 60;
    auto sampler = made({.sample_count = count, .batch_size = own_batch * world, .seed = 8});
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<Indices> seen(world);
        while (sampler.epoch() == epoch) {
            for (int rank = 0; rank < world; ++rank) {
                for (const auto index : taken(sampler, {.rank = rank, .world = world})) {
                    seen[static_cast<std::size_t>(rank)].push_back(index);
                }
            }
            REQUIRE(sampler.commit(sampler.next()).has_value());
        }
        for (int rank = 0; rank < world; ++rank) {
            auto torch = *DistributedSampler::make({.sample_count = count, .world = world, .rank = rank, .seed = 8});
            torch.set_epoch(epoch);
            CHECK(seen[static_cast<std::size_t>(rank)] == torch.indices());
        }
    }
}

TEST_CASE("looking ahead gives the steps that will come, into the next epoch") {
    auto sampler = made({.sample_count = 10, .batch_size = 4});
    auto ahead = sampler.next();
    for (int i = 0; i < 10; ++i) {
        CHECK(sampler.next() == ahead);
        const auto indices = *sampler.indices(ahead, {});
        const auto later = *sampler.after(ahead);
        REQUIRE(sampler.indices(later, {}).has_value());
        CHECK(taken(sampler, {}) == indices);
        REQUIRE(sampler.commit(ahead).has_value());
        ahead = later;
    }
    CHECK(sampler.epoch() == 3);
}

TEST_CASE("the batch size may change at any step, and the state has it") {
    auto sampler = made({.sample_count = 100, .batch_size = 10, .order = SampleOrder::sequential});
    REQUIRE(sampler.commit(sampler.next()).has_value());
    REQUIRE(sampler.set_batch_size(3).has_value());
    CHECK(taken(sampler, {}) == Indices{10, 11, 12});
    REQUIRE(sampler.commit(sampler.next()).has_value());
    auto other = made({.sample_count = 100, .batch_size = 50, .order = SampleOrder::sequential});
    REQUIRE(other.load_state(sampler.state()).has_value());
    CHECK(taken(other, {}) == Indices{13, 14, 15});
    CHECK(other.steps_left() == 29);
}

TEST_CASE("a step that was given out before the batch changed is committed as it was given out") {
    auto sampler = made({.sample_count = 100, .batch_size = 10});
    const auto given_out = sampler.next();
    REQUIRE(sampler.set_batch_size(3).has_value());
    REQUIRE(sampler.commit(given_out).has_value());
    CHECK(sampler.cursor() == 10);
    CHECK(sampler.next().count == 3);
}

TEST_CASE("with the tail dropped, a larger batch may end an epoch and a smaller one may save its samples") {
    auto sampler = made({.sample_count = 10, .batch_size = 4, .order = SampleOrder::sequential, .tail = Tail::drop});
    REQUIRE(sampler.commit(sampler.next()).has_value());  // 6 are left
    REQUIRE(sampler.set_batch_size(7).has_value());
    CHECK(sampler.next() == SampleStep{.epoch = 1, .first = 0, .count = 7, .ends_epoch = true});
    REQUIRE(sampler.set_batch_size(6).has_value());
    CHECK(sampler.next() == SampleStep{.epoch = 0, .first = 4, .count = 6, .ends_epoch = true});
    REQUIRE(sampler.set_batch_size(7).has_value());
    REQUIRE(sampler.commit(sampler.next()).has_value());
    CHECK(sampler.epoch() == 2);
}

TEST_CASE("a step that is not the next one cannot be committed") {
    auto sampler = made({.sample_count = 10, .batch_size = 4});
    const auto first = sampler.next(), second = *sampler.after(first);
    CHECK(sampler.commit(second).error().context ==
          "the step at place 4 of epoch 0 cannot be committed: the next one is at place 0 of epoch 0");
    REQUIRE(sampler.commit(first).has_value());
    CHECK(sampler.commit(first).error().code == Errc::refused);
    CHECK(sampler.cursor() == 4);
}

TEST_CASE("a step that no sampler has made is refused") {
    auto sampler = made({.sample_count = 10, .batch_size = 4});
    for (const SampleStep step :
         {SampleStep{.count = 0}, SampleStep{.first = 10, .count = 1},
          SampleStep{.first = 8, .count = 3, .ends_epoch = true},
          SampleStep{.first = 6, .count = 4, .ends_epoch = false},
          SampleStep{.first = 0, .count = 4, .ends_epoch = true}, SampleStep{.first = huge, .count = huge},
          SampleStep{.count = std::uint64_t{1} << 33, .ends_epoch = true}}) {
        CHECK(sampler.commit(step).error().code == Errc::invalid_argument);
        CHECK(sampler.after(step).error().code == Errc::invalid_argument);
        CHECK_THAT(sampler.indices(step, {}).error().context, Catch::Contains("does not belong to this sampler"));
    }
    CHECK(sampler.indices(sampler.next(), {.rank = 2, .world = 2}).error().context == "rank 2 is not in a world of 2");
    CHECK(sampler.indices(sampler.next(), {.rank = 0, .world = 0}).has_error());
    CHECK(sampler.indices(sampler.next(), {.rank = -1, .world = 2}).has_error());
}

TEST_CASE("options that cannot be are refused by name") {
    CHECK(sentence({.sample_count = 10}) == "the batch size is 0; it must be at least 1");
    CHECK(sentence({.sample_count = 0, .batch_size = 1}) == "the data set has no samples");
    CHECK(sentence({.sample_count = 10, .batch_size = huge}) == cat("a batch of ", huge, "; at most 4294967296"));
    CHECK_THAT(sentence({.sample_count = 10, .batch_size = 11, .tail = Tail::drop}),
               Catch::Contains("a batch of 11 out of 10 samples would drop them all"));
    CHECK_THAT(sentence({.sample_count = huge, .batch_size = 1}), Catch::Contains("take 'computed'"));
    CHECK(sentence({.sample_count = huge, .batch_size = 1, .order = SampleOrder::computed}) == "no error");
    auto sampler = made({.sample_count = 10, .batch_size = 4});
    CHECK(sampler.set_batch_size(0).has_error());
    CHECK(sampler.options().batch_size == 4);
}

TEST_CASE("data of 2^62 samples is gone on with anywhere, in no memory") {
    auto sampler = made({.sample_count = huge, .batch_size = 2, .order = SampleOrder::computed});
    REQUIRE(sampler
                .load_state(cat(R"({"version":1,"samples":)", huge,
                                R"(,"seed":0,"order":"computed","epoch":7,"cursor":)", huge - 3, R"(,"batch_size":2})"))
                .has_value());
    CHECK(taken(sampler, {}).size() == 2);
    REQUIRE(sampler.commit(sampler.next()).has_value());
    CHECK(taken(sampler, {}).size() == 1);
    REQUIRE(sampler.commit(sampler.next()).has_value());
    CHECK(sampler.epoch() == 8);
}

TEST_CASE("a sample's seed is of the sample, the epoch and the seed, and of nothing else") {
    auto sampler = made({.sample_count = 10, .batch_size = 4}), other = made({.sample_count = 99, .batch_size = 7});
    CHECK(sampler.sample_seed(2, 5) == other.sample_seed(2, 5));
    std::set<std::uint64_t> seeds;
    for (std::uint64_t epoch = 0; epoch < 100; ++epoch) {
        for (std::uint64_t index = 0; index < 100; ++index) seeds.insert(sampler.sample_seed(epoch, index));
    }
    CHECK(seeds.size() == 10'000);
    CHECK(made({.sample_count = 10, .batch_size = 4, .seed = 1}).sample_seed(2, 5) != sampler.sample_seed(2, 5));
}
