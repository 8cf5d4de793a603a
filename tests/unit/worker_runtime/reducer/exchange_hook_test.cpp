// An exchange of the trainer's own, in the place of a wire: what it is told, what becomes of its result, and what is
// said of its mistakes.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

/// Half the sum of what ranks have, in two collectives: the second changes nothing. `said` and `given` are how many it
/// speaks of, and how many it gives.
class HalfOfSum final : public BucketExchange {
  public:
    int said = 2;
    int given = 2;
    std::string label = "half of the sum";
    Result<void> ready{};
    std::optional<Error> trouble{};  ///< of the second collective

    int rank = -1;
    int world = 0;
    std::size_t parameter_count = 0;
    int prepared = 0;
    std::vector<float> samples;        ///< at each beginning of a bucket
    std::vector<std::uint64_t> steps;  ///< the same
    std::vector<std::string> asked;    ///< "bucket.stage"

    [[nodiscard]] std::string name() const override { return label; }
    Result<void> prepare(const ExchangeTerms& terms, std::span<const GradientBucket> /*buckets*/) override {
        rank = terms.rank;
        world = terms.world;
        parameter_count = terms.parameters.size();
        ++prepared;
        return ready;
    }
    [[nodiscard]] int collective_count(const GradientBucket& /*bucket*/) const override { return said; }
    Result<std::optional<Operation>> advance(const GradientBucket& bucket, int stage) override {
        asked.push_back(cat(bucket.index, ".", stage));
        if (stage == 0) {
            samples.push_back(bucket.samples);
            steps.push_back(bucket.step);
        }
        if (stage == 1 && trouble) return *trouble;
        if (stage < given)
            return std::optional(all_reduce(bucket.gradients, stage == 0 ? ReduceOp::sum : ReduceOp::max));
        for (std::size_t i = 0; i < bucket.gradients.count; ++i) static_cast<float*>(bucket.gradients.data)[i] *= 0.5f;
        return std::optional<Operation>();
    }
};

/// One step in the planned order, of gradients that are 1 + rank.
Result<void> take_step(GradientReducer& reducer, float samples = 1) {
    if (auto begun = reducer.begin_step(samples); !begun) return begun.error();
    const auto value = static_cast<float>(1 + reducer.communicator().rank());
    for (int i = 7; i >= 0; --i) {
        std::fill_n(static_cast<float*>(reducer.gradient(i).data), 64, value);
        if (auto marked = reducer.mark_ready(i); !marked) return marked;
    }
    return reducer.finish();
}

/// What the two ranks are told that train one step with such an exchange.
std::vector<std::string> told(const std::function<void(HalfOfSum&, int rank)>& change,
                              WireFormat wire = WireFormat::same) {
    ThreadGroup group(2);
    std::vector<std::string> errors(2);
    (void)group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto exchange = std::make_shared<HalfOfSum>();
        change(*exchange, communicator.rank());
        auto options = small_buckets();
        options.exchange = exchange;
        options.wire = wire;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        errors[static_cast<std::size_t>(communicator.rank())] =
            reducer ? complaint(take_step(*reducer)) : complaint(reducer);
        return {};
    });
    return errors;
}

/// A mistake of rank 0's exchange: it says `why`, with `where` before it, and so does rank 1, which waits for it.
void check_mistake(const std::function<void(HalfOfSum&)>& mistake, const std::string& where, const std::string& why) {
    const auto errors = told([&mistake](HalfOfSum& exchange, int rank) {
        if (rank == 0) mistake(exchange);
    });
    CHECK(errors[0] == cat(where, why));
    INFO(errors[1]);
    CHECK(errors[1].starts_with(where));
    CHECK(errors[1].ends_with(why));
}

}  // namespace

TEST_CASE("an exchange of the trainer's own knows the group and the step, and what it leaves is what finish() gives") {
    ThreadGroup group(2);
    std::vector<std::vector<std::string>> asked(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto exchange = std::make_shared<HalfOfSum>();
        auto options = small_buckets();
        options.exchange = exchange;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        if (reducer->description().find("wire half of the sum,") == std::string::npos) return reducer->description();
        for (int step = 0; step < 2; ++step) {
            if (auto taken = take_step(*reducer, static_cast<float>(3 + communicator.rank())); !taken)
                return complaint(taken);
            for (int i = 0; i < 8; ++i) {
                const auto* const values = static_cast<const float*>(reducer->gradient(i).data);
                if (values[0] != 1.5f || values[63] != 1.5f) return cat("gradient ", i, " is ", values[0]);
            }
        }
        if (exchange->rank != communicator.rank() || exchange->world != 2) return "it was told another group";
        if (exchange->parameter_count != 8 || exchange->prepared != 1) return "it was not prepared once, for all";
        const auto weight = static_cast<float>(3 + communicator.rank());
        if (exchange->samples != std::vector<float>(8, weight)) return "it was told other samples";
        if (exchange->steps != std::vector<std::uint64_t>{0, 0, 0, 0, 1, 1, 1, 1}) return "it was told other steps";
        asked[static_cast<std::size_t>(communicator.rank())] = exchange->asked;
        return {};
    });
    CHECK(wrong == "");
    CHECK(asked[0].size() == 2 * 4 * 3);
    CHECK(asked[1] == asked[0]);
}

TEST_CASE("an exchange is prepared anew for new buckets") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto exchange = std::make_shared<HalfOfSum>();
        auto options = small_buckets();
        options.exchange = exchange;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 2; ++step) {
            if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
            for (int i = 0; i < 8; ++i) (void)reducer->mark_ready(i);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
        }
        return exchange->prepared == 2 ? std::string() : cat("it was prepared ", exchange->prepared, " times");
    });
    CHECK(wrong == "");
}

TEST_CASE("mistakes of an exchange are errors that name it and the bucket, on all ranks at once") {
    check_mistake([](HalfOfSum& exchange) { exchange.given = 1; }, "gradient step 0: ",
                  "exchange half of the sum announced 2 collectives for bucket 0 and returned fewer");
    check_mistake(
        [](HalfOfSum& exchange) {
            exchange.trouble = Error{Errc::io, "no room"};
        },
        "gradient step 0: ", "gradients of bucket 0: no room");
    check_mistake(
        [](HalfOfSum& exchange) {
            exchange.ready = Error{Errc::io, "no room"};
        },
        "make a gradient reducer: ", "exchange half of the sum: no room");
    const auto more = told([](HalfOfSum& exchange, int) { exchange.said = 1; });
    CHECK(std::count(more.begin(), more.end(),
                     "gradient step 0: exchange half of the sum announced 1 collectives for bucket 0 and "
                     "returned more") > 0);
}

TEST_CASE("an exchange beside a wire is refused, and so are ranks whose exchanges have different names") {
    CHECK(told([](HalfOfSum&, int) {}, WireFormat::bf16)[0] ==
          "make a gradient reducer: set either `exchange` or `wire`, not both: an exchange defines the format");
    CHECK(told([](HalfOfSum& exchange, int rank) { exchange.label = cat("of rank ", rank); })[0] ==
          "make a gradient reducer: the setting \"exchange\" is of rank 0 on rank 0 but of rank 1 on rank 1: give all "
          "ranks the same");
}
