// Random training runs: whatever the model, the order of gradients, the passes and the ranks' samples, the averages are
// exact.
#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/effort.h"
#include "tests/unit/worker_runtime/reducer/random_model.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/core/registration.h"

using namespace muster;
using namespace muster::test;
using muster::runtime::element_count;
using muster::test::RandomModel;

namespace {

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
        std::vector<bool> fresh(run.parameters.size());
        for (std::size_t p = 0; p < run.steps[step].parts.size(); ++p) {
            const bool last = p + 1 == run.steps[step].parts.size();
            auto begun = last ? reducer->begin_step(run.steps[step].samples[rank]) : reducer->begin_local_step();
            if (!begun) return complaint(begun);
            for (const auto parameter : run.steps[step].parts[p].marks[rank]) {
                const Buffer gradient = reducer->gradient(parameter);
                // What was left of the step before lies there still, used or not.
                if (!fresh[static_cast<std::size_t>(parameter)]) {
                    write(gradient, std::vector<std::byte>(gradient.size_bytes()));
                    fresh[static_cast<std::size_t>(parameter)] = true;
                }
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
    // A third under the address sanitizer: the seed also decides which memory is touched.
    for (std::uint32_t seed = 1; seed <= effort(under_address_sanitizer ? 50u : 150u, 5u); ++seed) {
        const RandomRun run(seed);
        ThreadGroup group(run.world);
        INFO("seed " << seed << ", world " << run.world);
        const auto wrong = group.run([&](Communicator& communicator) { return take_steps(run, communicator); });
        CHECK(wrong == "");
    }
}
