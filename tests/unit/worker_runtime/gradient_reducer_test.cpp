// The reducer over ranks that are threads: what its steps give, whatever the model, the order and the ranks' inputs.
#include "muster/gradient_reducer.h"

#include <thread>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/random_model.h"
#include "tests/unit/worker_runtime/reducer_story.h"
#include "worker_runtime/core/registration.h"

using namespace muster;
using namespace muster::test;
using muster::runtime::element_count;
using muster::runtime::test::RandomModel;

namespace {

/// Four buckets of two parameters each, of 256 bytes, in the order 7 6 | 5 4 | 3 2 | 1 0.
constexpr double two_lines = 512.0 / (1 << 20);
ReducerOptions small_buckets() {
    return {.bucket_cap_mb = two_lines, .first_bucket_mb = two_lines, .last_bucket_mb = two_lines};
}
std::vector<Parameter> eight() {
    return f32_parameters({64, 64, 64, 64, 64, 64, 64, 64});
}

/// What every rank does in a random run. The same seed on all ranks; what differs between them is asked for by rank.
class RandomRun {
  public:
    explicit RandomRun(std::uint32_t seed) : random_(seed) {
        world = static_cast<int>(random_.number(1, 4));
        parameters = random_.parameters(24);
        options.bucket_cap_mb = static_cast<double>(random_.number(256, 20000)) / (1 << 20);
        options.first_bucket_mb = static_cast<double>(random_.number(0, 2000)) / (1 << 20);
        options.last_bucket_mb = static_cast<double>(random_.number(0, 2000)) / (1 << 20);
        if (random_.chance(20)) options.order = BucketOrder::registered;
        if (random_.chance(20)) options.finite_check = FiniteCheck::on;
        common_order = random_.shuffled(parameters.size());
        never_used.resize(parameters.size());
        for (std::size_t i = 0; i < never_used.size(); ++i) never_used[i] = random_.chance(15);
        for (int step = 0; step < 8; ++step) plan_step();
    }

    struct Part {
        std::vector<std::vector<std::int32_t>> marks;  ///< of each rank, in order
    };
    struct Step {
        std::vector<Part> parts;  ///< backward passes: local ones, then one that averages
        std::vector<float> samples;
    };
    int world = 1;
    std::vector<Parameter> parameters;
    ReducerOptions options;
    std::vector<std::int32_t> common_order;
    std::vector<bool> never_used;
    std::vector<Step> steps;

    [[nodiscard]] bool marked(const Step& step, int rank, std::int32_t parameter) const {
        return std::any_of(step.parts.begin(), step.parts.end(), [&](const Part& part) {
            const auto& marks = part.marks[static_cast<std::size_t>(rank)];
            return std::find(marks.begin(), marks.end(), parameter) != marks.end();
        });
    }

  private:
    void plan_step() {
        Step step;
        for (std::size_t p = random_.chance(70) ? 1 : random_.number(1, 3); p > 0; --p) {
            Part part;
            for (int rank = 0; rank < world; ++rank) {
                auto order = random_.chance(50) ? common_order : random_.shuffled(parameters.size());
                const bool incomplete = random_.chance(30);
                std::erase_if(order, [&](std::int32_t each) {
                    return (never_used[static_cast<std::size_t>(each)] && !random_.chance(5)) ||
                           (incomplete && random_.chance(20));
                });
                part.marks.push_back(std::move(order));
            }
            step.parts.push_back(std::move(part));
        }
        for (int rank = 0; rank < world; ++rank) {
            step.samples.push_back(random_.chance(70) ? 1 : static_cast<float>(random_.number(0, 40)) / 4);
        }
        step.samples[0] += 1;
        steps.push_back(std::move(step));
    }

    RandomModel random_;
};

/// One rank's gradient of a step: the sum of what its passes wrote, zero where it marked nothing.
std::vector<std::byte> local_gradient(const RandomRun& run, std::size_t step, int rank, std::size_t parameter) {
    const auto& spec = run.parameters[parameter];
    std::vector<std::byte> sum(element_count(spec) * size_of(spec.type));
    const Buffer buffer{.data = sum.data(), .count = element_count(spec), .type = spec.type};
    for (std::size_t p = 0; p < run.steps[step].parts.size(); ++p) {
        const auto& marks = run.steps[step].parts[p].marks[static_cast<std::size_t>(rank)];
        if (std::find(marks.begin(), marks.end(), static_cast<std::int32_t>(parameter)) == marks.end()) continue;
        accumulate(buffer, made_up(spec.type, buffer.count, seed_of(step * 10 + p, rank, parameter)));
    }
    return sum;
}

std::string check_step(const RandomRun& run, std::size_t step, const GradientReducer& reducer) {
    for (std::size_t i = 0; i < run.parameters.size(); ++i) {
        std::vector<std::vector<std::byte>> arrays;
        bool used = false;
        for (int rank = 0; rank < run.world; ++rank) {
            arrays.push_back(local_gradient(run, step, rank, i));
            used = used || run.marked(run.steps[step], rank, static_cast<std::int32_t>(i));
        }
        const int parameter = static_cast<int>(i);
        if (reducer.used(parameter) != used) return cat("step ", step, ": used(", i, ") is not ", used);
        if (!used) continue;
        const auto expected = average(run.parameters[i].type, arrays, run.steps[step].samples);
        if (!holds(reducer.gradient(parameter), expected))
            return cat("step ", step, ": wrong average of parameter ", i);
    }
    return {};
}

std::string take_steps(const RandomRun& run, Communicator& communicator) {
    const OwnedParameters parameters(run.parameters, static_cast<std::uint64_t>(communicator.rank()));
    auto reducer = GradientReducer::make(communicator, parameters.list(), run.options);
    if (!reducer) return complaint(reducer);
    for (std::size_t step = 0; step < run.steps.size(); ++step) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        for (std::size_t p = 0; p < run.steps[step].parts.size(); ++p) {
            const bool last = p + 1 == run.steps[step].parts.size();
            auto begun = last ? reducer->begin_step(run.steps[step].samples[rank]) : reducer->begin_local_step();
            if (!begun) return complaint(begun);
            if (p == 0) reducer->zero_gradients();
            for (const auto parameter : run.steps[step].parts[p].marks[rank]) {
                const Buffer gradient = reducer->gradient(parameter);
                accumulate(gradient,
                           made_up(gradient.type, gradient.count,
                                   seed_of(step * 10 + p, communicator.rank(), static_cast<std::size_t>(parameter))));
                if (auto marked = reducer->mark_ready(parameter); !marked) return complaint(marked);
            }
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
        }
        if (auto wrong = check_step(run, step, *reducer); !wrong.empty()) return wrong;
    }
    return {};
}

}  // namespace

TEST_CASE("whatever the model, orders, passes, samples and unused parameters: every rank gets the exact average") {
    for (std::uint32_t seed = 1; seed <= 150; ++seed) {
        const RandomRun run(seed);
        ThreadGroup group(run.world);
        INFO("seed " << seed << ", world " << run.world);
        REQUIRE(group.run([&](Communicator& communicator) { return take_steps(run, communicator); }) == "");
    }
}

TEST_CASE("rank 0's parameters are everybody's at the start, and gradients begin as zero") {
    ThreadGroup group(3);
    const OwnedParameters root(eight(), 0);
    CHECK(group
              .run([&](Communicator& communicator) -> std::string {
                  const OwnedParameters parameters(eight(), static_cast<std::uint64_t>(100 * communicator.rank()));
                  auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
                  if (!reducer) return complaint(reducer);
                  for (int i = 0; i < 8; ++i) {
                      if (parameters.bytes(static_cast<std::size_t>(i)) != root.bytes(static_cast<std::size_t>(i))) {
                          return cat("parameter ", i, " is not rank 0's");
                      }
                      if (!holds(reducer->gradient(i), std::vector<std::byte>(256)))
                          return cat("gradient ", i, " is not zero");
                  }
                  return {};
              })
              .empty());
}

TEST_CASE(
    "buckets are launched during the backward pass, in plan order, as soon as they and those before are complete") {
    ThreadGroup group(2);
    const auto launched = [&](std::size_t so_far, const std::string& when) {
        return group.wait_for_history(so_far) ? std::string()
                                              : cat(when, ": only ", group.history().size(), " launched");
    };
    CHECK(group
              .run([&](Communicator& communicator) -> std::string {
                  const OwnedParameters parameters(eight(), 0);
                  auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
                  if (!reducer) return complaint(reducer);
                  (void)communicator.run(barrier());
                  if (communicator.rank() == 0) group.clear_history();
                  (void)communicator.run(barrier());
                  (void)reducer->begin_step();
                  for (const int i : {7, 5, 4, 3}) (void)reducer->mark_ready(i);
                  if (group.history().size() > 1)
                      return "a bucket was launched before the one in front of it was complete";
                  (void)reducer->mark_ready(6);
                  if (auto wrong = launched(3, "after 7 6 5 4"); !wrong.empty())
                      return wrong;  // the barrier and two buckets
                  (void)reducer->mark_ready(2);
                  if (auto wrong = launched(4, "after 3 2"); !wrong.empty()) return wrong;
                  (void)reducer->mark_ready(0);
                  (void)reducer->mark_ready(1);
                  return complaint(reducer->finish());
              })
              .empty());
    const auto history = group.history();
    REQUIRE(history.size() == 6);  // barrier, four buckets, the control block
    for (std::size_t i = 1; i < 5; ++i) {
        CHECK(history[i].count == 128);
        CHECK((history[i].tag & 0xffff) == i - 1);
    }
    CHECK(history[5].type == DataType::u8);
    CHECK(history[5].count == 1 + 8 + 2 * 8);
}

TEST_CASE("after the first step buckets follow the order in which rank 0's gradients came") {
    ThreadGroup group(2);
    CHECK(group
              .run([&](Communicator& communicator) -> std::string {
                  const OwnedParameters parameters(eight(), 0);
                  auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
                  if (!reducer) return complaint(reducer);
                  const std::vector<int> order{3, 1, 4, 0, 5, 7, 2, 6};
                  for (int step = 0; step < 3; ++step) {
                      const auto layout = reducer->begin_step();
                      if (!layout) return complaint(layout);
                      if ((*layout == Layout::moved) != (step == 1)) return cat("step ", step, " had the other layout");
                      // Rank 1 has an order of its own, which does not matter.
                      for (int i = 0; i < 8; ++i) {
                          const int parameter = communicator.rank() == 0 ? order[static_cast<std::size_t>(i)] : i;
                          write(reducer->gradient(parameter), made_up(DataType::f32, 64, 1));
                          (void)reducer->mark_ready(parameter);
                      }
                      if (auto finished = reducer->finish(); !finished) return complaint(finished);
                  }
                  std::string found;
                  for (const auto& bucket : reducer->buckets()) {
                      for (const auto& slice : bucket.slices) found += cat(slice.parameter);
                  }
                  return found == "31405726" ? std::string() : "the buckets' order is " + found;
              })
              .empty());
}

TEST_CASE("a parameter that nobody uses is no longer sent, until somebody does") {
    ThreadGroup group(2);
    std::vector<std::size_t> bucket_counts;
    const auto complaint_of = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 10; ++step) {
            (void)communicator.run(barrier());
            if (communicator.rank() == 0) group.clear_history();
            (void)communicator.run(barrier());
            if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
            const bool used = step == 7 && communicator.rank() == 1;
            for (int i = 7; i >= 0; --i) {
                if ((i == 2 || i == 3) && !used) continue;
                write(reducer->gradient(i),
                      made_up(DataType::f32, 64, seed_of(0, communicator.rank(), static_cast<std::size_t>(i))));
                (void)reducer->mark_ready(i);
            }
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (reducer->used(2) != (step == 7)) return cat("step ", step, ": used(2) is wrong");
            if (!reducer->used(1)) return cat("step ", step, ": used(1) is wrong");
            if (step == 7) {
                const auto theirs = made_up(DataType::f32, 64, seed_of(0, 1, 2));
                const auto expected = average(DataType::f32, {std::vector<std::byte>(256), theirs}, {1, 1});
                if (!holds(reducer->gradient(2), expected)) return "wrong average of a rare parameter";
            }
            if (communicator.rank() == 0) {
                const auto history = group.history();
                bucket_counts.push_back(
                    static_cast<std::size_t>(std::count_if(history.begin(), history.end(), [](const Operation& each) {
                        return each.kind == OperationKind::all_reduce && each.type == DataType::f32;
                    })));
            }
        }
        return {};
    });
    CHECK(complaint_of.empty());
    INFO(complaint_of);
    // Four buckets; after three steps 3 and 2 lie in one that is not sent, but in step 7.
    CHECK(bucket_counts == std::vector<std::size_t>{4, 4, 4, 3, 3, 3, 3, 4, 3, 3});
}

TEST_CASE("ranks that run out of batches keep the others company, and all end with the same parameters") {
    ThreadGroup group(3);
    const std::vector<int> batches{2, 5, 0};
    std::vector<std::vector<float>> results(3);
    CHECK(group
              .run([&](Communicator& communicator) -> std::string {
                  const auto rank = static_cast<std::size_t>(communicator.rank());
                  const OwnedParameters parameters(f32_parameters({1, 1}), 0);
                  auto options = small_buckets();
                  options.inputs = Inputs::uneven;
                  auto reducer = GradientReducer::make(communicator, parameters.list(), options);
                  if (!reducer) return complaint(reducer);
                  std::vector<float> seen;
                  const auto apply = [&]() -> Result<void> {
                      seen.push_back(*static_cast<float*>(reducer->gradient(0).data));
                      return {};
                  };
                  for (int epoch = 0; epoch < 2; ++epoch) {
                      for (int batch = 0; batch < batches[rank]; ++batch) {
                          if (auto begun = reducer->begin_step(static_cast<float>(rank + 1)); !begun)
                              return complaint(begun);
                          for (const int i : {1, 0}) {
                              *static_cast<float*>(reducer->gradient(i).data) = static_cast<float>(10 * rank + batch);
                              (void)reducer->mark_ready(i);
                          }
                          if (auto finished = reducer->finish(); !finished) return complaint(finished);
                          (void)apply();
                      }
                      if (auto joined = reducer->join(apply); !joined) return complaint(joined);
                  }
                  results[rank] = seen;
                  return {};
              })
              .empty());
    // Ranks 0 and 1 count 1 and 2: (0 + 2 x 10) / 3, (1 + 2 x 11) / 3, then rank 1 alone.
    const float third = 1.0f / 3;
    std::vector<float> expected{20 * third, 23 * third, 12, 13, 14};
    const std::vector<float> epoch = expected;
    expected.insert(expected.end(), epoch.begin(), epoch.end());
    for (const auto& seen : results) {
        REQUIRE(seen.size() == expected.size());
        for (std::size_t i = 0; i < seen.size(); ++i) CHECK(std::abs(seen[i] - expected[i]) < 1e-5f);
        CHECK(seen == results[0]);
    }
}

TEST_CASE("marks may come from several threads") {
    ThreadGroup group(2);
    CHECK(group
              .run([&](Communicator& communicator) -> std::string {
                  const OwnedParameters parameters(f32_parameters(std::vector<std::int64_t>(200, 16)), 0);
                  auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
                  if (!reducer) return complaint(reducer);
                  for (std::uint64_t step = 0; step < 10; ++step) {
                      if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
                      const auto mark = [&](int first) {
                          for (int i = first; i >= 0; i -= 2) {
                              write(reducer->gradient(i),
                                    made_up(DataType::f32, 16,
                                            seed_of(step, communicator.rank(), static_cast<std::size_t>(i))));
                              (void)reducer->mark_ready(i);
                          }
                      };
                      std::thread other(mark, 198);
                      mark(199);
                      other.join();
                      if (auto finished = reducer->finish(); !finished) return complaint(finished);
                      for (std::size_t i = 0; i < 200; ++i) {
                          const auto expected = average(DataType::f32,
                                                        {made_up(DataType::f32, 16, seed_of(step, 0, i)),
                                                         made_up(DataType::f32, 16, seed_of(step, 1, i))},
                                                        {1, 1});
                          if (!holds(reducer->gradient(static_cast<int>(i)), expected))
                              return cat("step ", step, ": parameter ", i);
                      }
                  }
                  return {};
              })
              .empty());
}
