// Random runs of an elastic sampler: worlds and batches that change, steps that fail before their commit, kills after
// which the run goes on from an older checkpoint. What was committed, kills taken back, must be what a run of one rank
// without any faults would have taken.
#include <algorithm>
#include <numeric>

#include "muster/elastic_sampler.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "worker_runtime/data/index_permutation.h"
#include "worker_runtime/data/mixing.h"
#include "worker_runtime/data/torch_permutation.h"

using namespace muster;
using namespace muster::runtime;

namespace {

constexpr std::uint64_t epoch_count = 3;

using Indices = std::vector<std::uint64_t>;

struct Dice {
    std::uint64_t state;
    /// 0 .. sides - 1.
    std::uint64_t operator()(std::uint64_t sides) { return next_random(state) % sides; }
};

/// The order of an epoch, by what it is made of.
Indices order_of(const ElasticSamplerOptions& options, std::uint64_t epoch) {
    Indices order(options.sample_count);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    if (options.order == SampleOrder::torch) {
        const auto torch = torch_permutation(static_cast<std::uint32_t>(order.size()), options.seed + epoch);
        order.assign(torch.begin(), torch.end());
    } else if (options.order == SampleOrder::computed) {
        const IndexPermutation permutation(order.size(), options.seed, epoch);
        for (auto& index : order) index = permutation.at(index);
    }
    return order;
}

/// All ranks' shares of a step, put together again in the order of their places.
Indices taken_by(const ElasticSampler& sampler, const SampleStep& step, int world) {
    Indices together(step.count);
    std::size_t contiguous = 0, seen = 0;
    std::size_t least = step.count, most = 0;
    for (int rank = 0; rank < world; ++rank) {
        const auto own = *sampler.indices(step, {.rank = rank, .world = world});
        auto place = static_cast<std::size_t>(rank);
        for (const auto index : own) {
            together.at(sampler.options().deal == Deal::strided ? place : contiguous++) = index;
            place += static_cast<std::size_t>(world);
        }
        seen += own.size();
        least = std::min(least, own.size());
        most = std::max(most, own.size());
    }
    CHECK(seen == step.count);
    CHECK(most - least <= 1);
    return together;
}

/// What a checkpoint holds: the sampler's state, and how much of the story is in it.
struct Saved {
    std::string state;
    std::vector<Indices> committed;
};

struct Run {
    ElasticSamplerOptions options;
    Dice dice;
    bool batch_changes = false;
    std::string story = {};  ///< for the message of a failure
    int kill_count = 0;

    std::vector<Indices> committed() {
        auto sampler = std::move(*ElasticSampler::make(options));
        Saved now{.state = sampler.state(), .committed = std::vector<Indices>(epoch_count)}, saved = now;
        int world = 1 + static_cast<int>(dice(6));
        for (int events = 0; sampler.epoch() < epoch_count; ++events) {
            if (dice(4) == 0) world = 1 + static_cast<int>(dice(6));
            if (batch_changes && dice(5) == 0) (void)sampler.set_batch_size(1 + dice(options.sample_count));
            const auto step = sampler.next();
            const auto taken = taken_by(sampler, step, world);
            // The more a run repeats itself, the less it is killed, so that it comes to an end.
            const auto fate = dice(10 + static_cast<std::uint64_t>(events) / 20);
            if (fate == 0) continue;  // failed before its commit: the same step again, perhaps by others
            if (fate == 1) {          // killed: a new process goes on from the checkpoint
                ++kill_count;
                story += cat(" kill@", step.epoch, "/", step.first);
                sampler = std::move(*ElasticSampler::make(options));
                REQUIRE(sampler.load_state(saved.state).has_value());
                now = saved;
                continue;
            }
            if (batch_changes && dice(5) == 0) (void)sampler.set_batch_size(1 + dice(options.sample_count));
            REQUIRE(sampler.commit(step).has_value());
            if (step.epoch < epoch_count) {
                auto& seen = now.committed[step.epoch];
                seen.insert(seen.end(), taken.begin(), taken.end());
            }
            now.state = sampler.state();
            if (fate <= 4) saved = now;
        }
        return now.committed;
    }
};

Run run_of(std::uint64_t seed, Tail tail) {
    Dice dice{seed};
    const auto count = 1 + dice(dice(3) == 0 ? 300 : 12);
    const auto batch = 1 + dice(tail == Tail::drop ? count : count + 3);
    return {.options = {.sample_count = count,
                        .batch_size = batch,
                        .seed = dice(1'000),
                        .order = static_cast<SampleOrder>(dice(3)),
                        .deal = static_cast<Deal>(dice(2)),
                        .tail = tail},
            .dice = dice};
}

constexpr std::uint64_t seed_count = 1'500;

}  // namespace

TEST_CASE("each epoch's committed samples are all of them, once, in the epoch's order, whatever happens") {
    int kill_count = 0;
    for (std::uint64_t seed = 0; seed < seed_count; ++seed) {
        auto run = run_of(seed, Tail::short_batch);
        run.batch_changes = seed % 2 == 1;
        const auto committed = run.committed();
        kill_count += run.kill_count;
        INFO("seed " << seed << run.story);
        for (std::uint64_t epoch = 0; epoch < epoch_count; ++epoch) {
            REQUIRE(committed[epoch] == order_of(run.options, epoch));
            auto sorted = committed[epoch];
            std::sort(sorted.begin(), sorted.end());
            for (std::uint64_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == i);
        }
    }
    CHECK(kill_count > 1'000);  // or the dice show nothing
}

TEST_CASE("with `pad` the front of each epoch's order comes again until the last batch is full") {
    for (std::uint64_t seed = 0; seed < seed_count; ++seed) {
        auto run = run_of(seed, Tail::pad);
        const auto committed = run.committed();
        INFO("seed " << seed << run.story);
        const auto count = run.options.sample_count, batch = run.options.batch_size;
        for (std::uint64_t epoch = 0; epoch < epoch_count; ++epoch) {
            auto expected = order_of(run.options, epoch);
            while (expected.size() % batch != 0) expected.push_back(expected[expected.size() - count]);
            REQUIRE(committed[epoch] == expected);
        }
    }
}

TEST_CASE("with `drop` what does not fill a batch at an epoch's end is left out") {
    for (std::uint64_t seed = 0; seed < seed_count; ++seed) {
        auto run = run_of(seed, Tail::drop);
        const auto committed = run.committed();
        INFO("seed " << seed << run.story);
        for (std::uint64_t epoch = 0; epoch < epoch_count; ++epoch) {
            auto expected = order_of(run.options, epoch);
            expected.resize(expected.size() / run.options.batch_size * run.options.batch_size);
            REQUIRE(committed[epoch] == expected);
        }
    }
}
