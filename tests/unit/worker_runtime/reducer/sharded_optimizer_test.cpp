#include "muster/sharded_optimizer.h"

#include <cmath>
#include <numeric>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/arithmetic/gradient_math.h"
#include "worker_runtime/core/optimizer_math.h"

using namespace muster;
using namespace muster::test;

namespace {

ReducerOptions pieces() {
    ReducerOptions options{.bucket_cap_mb = 0.01, .first_bucket_mb = 0.001, .last_bucket_mb = 0.001};
    options.result = GradientResult::own_piece;
    return options;
}

std::vector<Parameter> model(DataType type) {
    std::vector<Parameter> parameters;
    for (const std::int64_t size : {3, 1000, 1, 77, 5008}) {
        parameters.push_back({.name = cat("p", parameters.size()), .shape = {size}, .type = type});
    }
    return parameters;
}

/// Parameter 2 is used in every second step only.
bool used(std::size_t parameter, int step) {
    return parameter != 2 || step % 2 == 0;
}

/// Of each rank: 1, 2, 3...
std::vector<float> samples(int world) {
    std::vector<float> all(static_cast<std::size_t>(world));
    std::iota(all.begin(), all.end(), 1.0f);
    return all;
}

std::vector<float> as_f32(const ConstBuffer& from) {
    std::vector<float> values(from.count);
    runtime::convert(from, buffer(std::span<float>(values)));
    return values;
}

/// The whole optimizer on one rank: what the ranks together must come to, bit for bit.
std::vector<std::vector<std::byte>> trained_alone(const OptimizerRule& rule, DataType type, int world, int steps) {
    const OwnedParameters parameters(model(type), 0);
    std::vector<std::vector<std::byte>> result;
    for (std::size_t i = 0; i < parameters.list().size(); ++i) {
        const std::size_t count = parameters.bytes(i).size() / size_of(type);
        auto values = as_f32({parameters.bytes(i).data(), count, type});
        std::vector<float> first(runtime::moment_count(rule) > 0 ? count : 0);
        std::vector<float> second(runtime::moment_count(rule) > 1 ? count : 0);
        std::uint64_t updates = 0;
        for (int step = 0; step < steps; ++step) {
            if (!used(i, step)) continue;
            std::vector<std::vector<std::byte>> gradients;
            for (int rank = 0; rank < world; ++rank) {
                gradients.push_back(made_up(type, count, seed_of(static_cast<std::uint64_t>(step), rank, i)));
            }
            const auto gradient = average(type, gradients, samples(world));
            runtime::update(rule, ++updates, as_f32({gradient.data(), count, type}), values, first, second);
        }
        result.emplace_back(count * size_of(type));
        runtime::convert(buffer(std::span<float>(values)),
                         {.data = result.back().data(), .count = count, .type = type});
    }
    return result;
}

std::string train_together(const OptimizerRule& rule, DataType type, int world, int steps) {
    const auto expected = trained_alone(rule, type, world, steps);
    ThreadGroup group(world);
    return group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(model(type), static_cast<std::uint64_t>(1000 * communicator.rank()));
        auto reducer = GradientReducer::make(communicator, parameters.list(), pieces());
        if (!reducer) return complaint(reducer);
        auto optimizer = ShardedOptimizer::make(*reducer, rule);
        if (!optimizer) return complaint(optimizer);
        for (int step = 0; step < steps; ++step) {
            const auto own = samples(world)[static_cast<std::size_t>(communicator.rank())];
            if (auto begun = reducer->begin_step(own); !begun) return complaint(begun);
            for (std::size_t i = 0; i < expected.size(); ++i) {
                if (!used(i, step)) continue;
                const Buffer gradient = reducer->gradient(static_cast<int>(i));
                write(gradient,
                      made_up(type, gradient.count, seed_of(static_cast<std::uint64_t>(step), communicator.rank(), i)));
                (void)reducer->mark_ready(static_cast<int>(i));
            }
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (auto stepped = optimizer->step(); !stepped) return complaint(stepped);
        }
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (parameters.bytes(i) != expected[i]) return cat("parameter ", i, " is another than on one rank");
        }
        return {};
    });
}

bool near(float a, double b) {
    return std::abs(a - b) < 2e-6;
}

}  // namespace

TEST_CASE("the rules are PyTorch's") {
    // One parameter of 1 with gradients 0.5, -0.25, 1, by the formulas of their documentation, in f64.
    const auto run = [](const OptimizerRule& rule) {
        std::vector<float> value{1};
        std::vector<float> first(runtime::moment_count(rule) > 0 ? 1 : 0);
        std::vector<float> second(runtime::moment_count(rule) > 1 ? 1 : 0);
        std::uint64_t number = 0;
        for (const float gradient : {0.5f, -0.25f, 1.0f}) {
            runtime::update(rule, ++number, std::vector<float>{gradient}, value, first, second);
        }
        return value[0];
    };
    CHECK(near(run(Sgd{.learning_rate = 0.1}), 1 - 0.1 * (0.5 - 0.25 + 1)));
    double value = 1;
    double velocity = 0;
    int number = 0;
    for (const double gradient : {0.5, -0.25, 1.0}) {
        const double slope = gradient + 0.1 * value;
        velocity = number++ == 0 ? slope : 0.9 * velocity + slope;
        value -= 0.1 * velocity;
    }
    CHECK(near(run(Sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}), value));
    const auto adam = [](double coupled, double decoupled, double beta1 = 0.9, double beta2 = 0.999,
                         double epsilon = 1e-8) {
        double x = 1;
        double m = 0;
        double v = 0;
        int t = 0;
        for (const double gradient : {0.5, -0.25, 1.0}) {
            ++t;
            x *= 1 - 0.1 * decoupled;
            const double slope = gradient + coupled * x;
            m = beta1 * m + (1 - beta1) * slope;
            v = beta2 * v + (1 - beta2) * slope * slope;
            x -= 0.1 * (m / (1 - std::pow(beta1, t))) / (std::sqrt(v / (1 - std::pow(beta2, t))) + epsilon);
        }
        return x;
    };
    CHECK(near(run(Adam{.learning_rate = 0.1, .weight_decay = 0.1}), adam(0.1, 0)));
    CHECK(near(run(AdamW{.learning_rate = 0.1, .weight_decay = 0.1}), adam(0, 0.1)));
    // Where all numbers matter.
    CHECK(near(run(Adam{.learning_rate = 0.1, .beta1 = 0.6, .beta2 = 0.7, .epsilon = 0.3, .weight_decay = 0.1}),
               adam(0.1, 0, 0.6, 0.7, 0.3)));
    CHECK(near(run(AdamW{.learning_rate = 0.1, .beta1 = 0.6, .beta2 = 0.7, .epsilon = 0.3, .weight_decay = 0.1}),
               adam(0, 0.1, 0.6, 0.7, 0.3)));
}

TEST_CASE("ranks with a piece of the state each train to the same bits as one with all of it") {
    for (const int world : {1, 2, 3}) {
        for (const auto type : {DataType::f32, DataType::bf16}) {
            INFO("world " << world << ", " << name(type));
            CHECK(train_together(Sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01}, type, world, 5) ==
                  "");
            CHECK(train_together(Sgd{}, type, world, 3) == "");
            CHECK(train_together(Adam{.weight_decay = 0.1}, type, world, 5) == "");
            CHECK(train_together(AdamW{.learning_rate = 0.01}, type, world, 5) == "");
        }
    }
}

TEST_CASE("the pieces of all ranks make up every parameter once, and what they are given is what parameters become") {
    ThreadGroup group(3);
    std::vector<std::vector<int>> covered(5);
    for (std::size_t i = 0; i < 5; ++i) covered[i].resize(std::vector<std::size_t>{3, 1000, 1, 77, 5008}[i]);
    std::mutex mutex;
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(model(DataType::f32), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), pieces());
        if (!reducer) return complaint(reducer);
        auto optimizer = ShardedOptimizer::make(*reducer, AdamW{});
        if (!optimizer) return complaint(optimizer);
        for (const auto& piece : optimizer->pieces()) {
            const std::lock_guard lock(mutex);
            for (std::size_t i = 0; i < piece.values.size(); ++i) {
                ++covered[static_cast<std::size_t>(piece.parameter)][piece.offset + i];
                piece.values[i] = static_cast<float>(piece.offset + i);
            }
        }
        if (auto loaded = optimizer->reload(); !loaded) return complaint(loaded);
        for (const auto& bytes : {parameters.bytes(1), parameters.bytes(4)}) {
            for (std::size_t i = 0; i < bytes.size() / 4; ++i) {
                float value = 0;
                std::memcpy(&value, bytes.data() + 4 * i, 4);
                if (value != static_cast<float>(i)) return cat("element ", i, " is ", value);
            }
        }
        return {};
    });
    CHECK(wrong == "");
    for (const auto& parameter : covered) CHECK(parameter == std::vector<int>(parameter.size(), 1));
}

TEST_CASE("the learning rate may change between steps") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        std::vector<float> memory(64, 1);
        const std::vector<Parameter> parameters = {{.name = "w", .shape = {64}, .data = memory.data()}};
        auto reducer = GradientReducer::make(communicator, parameters, pieces());
        if (!reducer) return complaint(reducer);
        auto optimizer = ShardedOptimizer::make(*reducer, Sgd{.learning_rate = 0.5});
        if (!optimizer) return complaint(optimizer);
        for (const double rate : {0.5, 0.25}) {
            optimizer->set_learning_rate(rate);
            (void)reducer->begin_step();
            std::fill_n(static_cast<float*>(reducer->gradient(0).data), 64, 1.0f);
            (void)reducer->mark_ready(0);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (auto stepped = optimizer->step(); !stepped) return complaint(stepped);
        }
        return memory == std::vector<float>(64, 0.25f) ? std::string() : cat("it is ", memory[0]);
    });
    CHECK(wrong == "");
}

TEST_CASE("the norm of gradients that lie in pieces is that of the whole") {
    std::vector<double> norms(4);
    for (const int world : {1, 3}) {
        ThreadGroup group(world);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(model(DataType::f32), 0);
            auto reducer = GradientReducer::make(communicator, parameters.list(), pieces());
            if (!reducer) return complaint(reducer);
            (void)reducer->begin_step();
            for (int i = 4; i >= 0; --i) {
                write(reducer->gradient(i),
                      made_up(DataType::f32, reducer->gradient(i).count, static_cast<std::uint64_t>(i)));
                (void)reducer->mark_ready(i);
            }
            (void)reducer->finish();
            const auto norm = reducer->clip_grad_norm(1);
            if (!norm) return complaint(norm);
            const auto after = reducer->clip_grad_norm(1);
            if (std::abs(*after - 1) > 1e-6) return cat("the norm after clipping is ", *after);
            if (communicator.rank() == 0) norms[static_cast<std::size_t>(world)] = *norm;
            return {};
        });
        CHECK(wrong == "");
    }
    CHECK(std::abs(norms[1] - norms[3]) < 1e-6 * norms[1]);
}

TEST_CASE("a step without gradients of its own is an error: the buckets hold parameters by then") {
    ThreadGroup group(2);
    CHECK(group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(model(DataType::f32), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), pieces());
        auto optimizer = ShardedOptimizer::make(*reducer, Sgd{});
        const std::string expected =
            "sharded optimizer: no gradients were averaged since it was made, updated or reloaded: "
            "call finish() first";
        if (complaint(optimizer->step()) != expected) return "before the first";
        for (int step = 0; step < 2; ++step) {
            (void)reducer->begin_step();
            if (complaint(optimizer->step()) != expected) return "while gradients come";
            for (int i = 4; i >= 0; --i) (void)reducer->mark_ready(i);
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            if (auto stepped = optimizer->step(); !stepped) return complaint(stepped);
            const auto before = parameters.bytes(4);
            if (complaint(optimizer->step()) != expected) return "a second time";
            if (parameters.bytes(4) != before) return "a second time changed parameters";
            if (auto loaded = optimizer->reload(); !loaded) return complaint(loaded);
        }
        (void)reducer->begin_step();
        for (int i = 4; i >= 0; --i) (void)reducer->mark_ready(i);
        if (auto finished = reducer->finish(); !finished) return complaint(finished);
        if (auto loaded = optimizer->reload(); !loaded) return complaint(loaded);
        return complaint(optimizer->step()) == expected ? "" : "after a reload";
    }) == "");
}

TEST_CASE("a sharded optimizer that cannot work says why") {
    ThreadGroup group(1);
    CHECK(group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(model(DataType::f32), 0);
        auto whole = GradientReducer::make(communicator, parameters.list());
        auto text = complaint(ShardedOptimizer::make(*whole, Sgd{}));
        auto reducer = GradientReducer::make(communicator, parameters.list(), pieces());
        text += "\n" + complaint(ShardedOptimizer::make(*reducer, Sgd{.momentum = 1}));
        text += "\n" + complaint(ShardedOptimizer::make(*reducer, Adam{.learning_rate = -1}));
        text += "\n" + complaint(ShardedOptimizer::make(*reducer, AdamW{.beta2 = 1.5}));
        const OwnedParameters wide(model(DataType::f64), 0);
        auto doubles = GradientReducer::make(communicator, wide.list(), pieces());
        return text + "\n" + complaint(ShardedOptimizer::make(*doubles, Sgd{}));
    }) == "rank 0: a sharded optimizer needs a reducer that was made with GradientResult::own_piece\n"
          "momentum must be from 0 to below 1, not 1\n"
          "learning_rate must be at least 0, not -1\n"
          "beta2 must be from 0 to below 1, not 1.5\n"
          "parameter \"p0\" is f64; sharded optimizers keep f32");
}
