// The reducer's errors: models that differ, calls out of order, gradients that are no numbers, ranks that die.
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "muster/gradient_reducer.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"

using namespace muster;
using namespace muster::test;

namespace {

/// What each of three ranks is told when rank 2 has these parameters and options.
std::vector<std::string> told(const std::vector<Parameter>& odd_one_out, const ReducerOptions& odd_options = {},
                              const ReducerOptions& options = {}) {
    ThreadGroup group(3);
    std::vector<std::string> errors(3);
    (void)group.run([&](Communicator& communicator) -> std::string {
        const bool odd = communicator.rank() == 2;
        const OwnedParameters parameters(odd ? odd_one_out : f32_parameters({4, 5}), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), odd ? odd_options : options);
        errors[static_cast<std::size_t>(communicator.rank())] = complaint(reducer);
        return {};
    });
    return errors;
}

constexpr double one_line = 64.0 / (1 << 20);
const ReducerOptions bucket_each{.bucket_cap_mb = one_line, .first_bucket_mb = one_line, .last_bucket_mb = one_line};

/// Runs one rank alone.
std::string alone(const std::function<std::string(GradientReducer&)>& body,
                  const ReducerOptions& options = bucket_each) {
    ThreadGroup group(1);
    return group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({4, 4, 4}), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        return reducer ? body(*reducer) : complaint(reducer);
    });
}

}  // namespace

TEST_CASE("ranks with different models are all told which parameter differs between which ranks") {
    const auto all_say = [](const std::vector<std::string>& errors, const std::string& what) {
        INFO(errors[0]);
        return errors[0] == "make a gradient reducer: " + what && errors[1] == errors[0] && errors[2] == errors[0];
    };
    auto renamed = f32_parameters({4, 5});
    renamed[1].name = "other";
    CHECK(all_say(told(renamed),
                  "\"other\" is parameter 1 of rank 2, and rank 0 has none of that name (parameter 1 there "
                  "is \"p1\"): build the same model on all ranks"));
    CHECK(all_say(told(f32_parameters({4, 6})),
                  "parameter \"p1\" is f32 [5] on rank 0 but f32 [6] on rank 2: build the same model on all ranks"));
    auto retyped = f32_parameters({4, 5});
    retyped[0].type = DataType::f64;
    CHECK(all_say(told(retyped),
                  "parameter \"p0\" is f32 [4] on rank 0 but f64 [4] on rank 2: build the same model on all ranks"));
    CHECK(all_say(told(f32_parameters({4, 5}), {.bucket_cap_mb = 1}),
                  "the setting \"bucket_cap_mb\" is 25 on rank 0 but 1 on rank 2: give all ranks the same"));
    CHECK(all_say(told(f32_parameters({4, 5}), {.wire = WireFormat::bf16}),
                  "the setting \"exchange\" is same on rank 0 but bf16 on rank 2: give all ranks the same"));
    const auto power = told(f32_parameters({4, 5}), {.wire = WireFormat::power, .power_rank = 3},
                            {.wire = WireFormat::power, .power_rank = 4});
    CHECK(all_say(power,
                  "the setting \"exchange\" is PowerSGD of rank 4 from step 10 on rank 0 but PowerSGD of rank 3 "
                  "from step 10 on rank 2: give all ranks the same"));
    const std::pair<const char*, ReducerOptions> others[] = {
        {"first_bucket_mb", {.first_bucket_mb = 2}},         {"last_bucket_mb", {.last_bucket_mb = 2}},
        {"order", {.order = BucketOrder::registered}},       {"inputs", {.inputs = Inputs::uneven}},
        {"finite_check", {.finite_check = FiniteCheck::on}},
    };
    for (const auto& [setting, options] : others) {
        const auto errors = told(f32_parameters({4, 5}), options);
        CHECK(errors[0].find(cat("the setting \"", setting, "\" is ")) != std::string::npos);
        CHECK((errors[1] == errors[0] && errors[2] == errors[0]));
    }
}

TEST_CASE("a rank that cannot make its reducer says why, and the others say that it could not") {
    auto twice = f32_parameters({4, 5});
    twice[1].name = "p0";
    const auto errors = told(twice);
    CHECK(errors[2] == "make a gradient reducer: parameter \"p0\": its name occurs twice");
    CHECK(errors[0] ==
          "make a gradient reducer: rank 2 could not make its gradient reducer: see the error of that rank");
    CHECK(errors[1] == errors[0]);
    const auto options = told(f32_parameters({4, 5}), {.bucket_cap_mb = -1});
    CHECK(options[2] == "make a gradient reducer: a bucket's size in MiB must be 0 to 1048576, not -1");
    CHECK(options[0] == errors[0]);
}

TEST_CASE("calls out of order are errors that name the step and the parameter, and change nothing") {
    const auto told_by_calls = alone([](GradientReducer& reducer) -> std::string {
        std::string text;
        const auto say = [&](const auto& result) { text += complaint(result) + "\n"; };
        say(reducer.mark_ready(1));
        say(reducer.finish());
        say(reducer.begin_step(-1));
        for (const float samples : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            if (complaint(reducer.begin_step(samples)).find("samples must be a finite number") == std::string::npos)
                text += "it took samples that are no number";
        }
        (void)reducer.begin_step();
        say(reducer.begin_step());
        say(reducer.mark_ready(3));
        say(reducer.mark_ready(-1));
        (void)reducer.mark_ready(2);
        say(reducer.mark_ready(2));
        say(reducer.clip_grad_norm(1));
        for (const int i : {1, 0}) text += complaint(reducer.mark_ready(i));
        text += complaint(reducer.finish());
        say(reducer.join([] { return Result<void>(); }));
        return text;
    });
    CHECK(told_by_calls ==
          "rank 0: "
          "gradient step 0: parameter \"p1\" was marked ready before begin_step()\n"
          "gradient step 0: finish() needs a begin_step() first\n"
          "gradient step 0: samples must be a finite number >= 0, not -1\n"
          "gradient step 0: it has begun already: call finish() before the next one begins\n"
          "gradient step 0: there is no parameter 3; the last one is 2\n"
          "gradient step 0: there is no parameter -1; the last one is 2\n"
          "gradient step 0: parameter \"p2\" was marked ready twice on rank 0: mark it once, when its gradient is "
          "complete, "
          "even if the model uses it several times\n"
          "gradient step 0: clip_grad_norm() must be called after finish()\n"
          "gradient step 1: join() needs a reducer made with Inputs::uneven on all ranks\n");
}

TEST_CASE("a death at any collective of a step gives every rank an error that names it, and then no other") {
    std::size_t failures = 0;
    for (std::size_t at = 0; at < 40; ++at) {
        INFO("at operation " << at);
        ThreadGroup group(2);
        std::vector<int> failed(2);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(f32_parameters({4, 4, 4}), 0);
            if (communicator.rank() == 0) group.fail_after(at);
            (void)communicator.run(barrier());
            auto reducer = GradientReducer::make(communicator, parameters.list(), bucket_each);
            std::string error = complaint(reducer);
            for (int step = 0; step < 4 && error.empty(); ++step) {
                error += complaint(reducer->begin_step());
                for (const int i : {1, 0, 2}) {
                    if (error.empty()) error = complaint(reducer->mark_ready(i));
                }
                if (error.empty()) error = complaint(reducer->finish());
            }
            if (error.empty()) return {};
            ++failed[static_cast<std::size_t>(communicator.rank())];
            if (error.find("rank 0 died") == std::string::npos) return "the error does not name the rank: " + error;
            if (!reducer) return {};
            const bool dead = complaint(reducer->begin_step()) == error && complaint(reducer->finish()) == error &&
                              complaint(reducer->clip_grad_norm(1)) == error;
            return dead ? std::string() : "it does not stay dead: " + error + " / " + complaint(reducer->begin_step());
        });
        CHECK(wrong.empty());
        INFO(wrong);
        CHECK(failed[0] == failed[1]);
        failures += static_cast<std::size_t>(failed[0]);
    }
    CHECK(failures > 20);
}

TEST_CASE("when a launch fails under several threads' marks, every later mark returns that first error") {
    constexpr int thread_count = 3;
    constexpr int parameter_count = 300;
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters(std::vector<std::int64_t>(parameter_count, 4)), 0);
        auto options = bucket_each;
        options.wire = WireFormat::bf16;  // its second collectives are started by marks, which wait for the first
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
        if (communicator.rank() == 0) group.fail_after(40);
        std::vector<std::vector<std::string>> errors(thread_count);
        std::vector<std::thread> threads;
        for (int t = 0; t < thread_count; ++t) {
            threads.emplace_back([&, t] {
                for (int i = parameter_count - 1 - t; i >= 0; i -= thread_count) {
                    if (auto error = complaint(reducer->mark_ready(i)); !error.empty()) {
                        errors[static_cast<std::size_t>(t)].push_back(std::move(error));
                    }
                }
            });
        }
        for (auto& thread : threads) thread.join();
        const auto first = complaint(reducer->finish());
        if (first.find("rank 0 died") == std::string::npos) return "the failure is not told: " + first;
        for (const auto& each : errors) {
            for (const auto& error : each) {
                if (error != first) return cat("a mark said: ", error, ", and the first error is: ", first);
            }
        }
        for (const int i : {0, parameter_count, -1}) {
            if (complaint(reducer->mark_ready(i)) != first) return "a late mark says something else";
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("a reducer that is destroyed in the middle of a step first waits for what is in progress") {
    for (const auto inputs : {Inputs::even, Inputs::uneven}) {
        ThreadGroup group(1);
        auto options = bucket_each;
        options.inputs = inputs;
        std::thread later;
        std::atomic<bool> over = false;
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(f32_parameters({4, 4, 4}), 0);
            auto reducer = GradientReducer::make(communicator, parameters.list(), options);
            if (!reducer) return complaint(reducer);
            group.hold();
            (void)reducer->begin_step();
            // A bucket is in progress, or the question who has a batch left.
            if (inputs == Inputs::even) (void)reducer->mark_ready(2);
            later = std::thread([&] {
                for (int i = 0; i < 100; ++i) std::this_thread::yield();
                over = true;
                group.let_go();
            });
            reducer = Error{Errc::cancelled, "gone"};
            return over ? std::string() : "its memory went while a collective was using it";
        });
        later.join();
        CHECK(wrong == "");
    }
}

TEST_CASE("a gradient that is no number is named with its rank on all ranks, and training can go on") {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        ThreadGroup group(3);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(f32_parameters({4, 5000, 4}), 0);
            auto options = bucket_each;
            options.finite_check = FiniteCheck::on;
            auto reducer = GradientReducer::make(communicator, parameters.list(), options);
            if (!reducer) return complaint(reducer);
            for (int step = 0; step < 3; ++step) {
                (void)reducer->begin_step();
                for (const int i : {2, 1, 0}) {
                    auto* const gradient = static_cast<float*>(reducer->gradient(i).data);
                    std::fill_n(gradient, reducer->gradient(i).count, 1.0f);
                    if (step > 0 && i == 1 && communicator.rank() == 2) gradient[4999] = bad;
                    if (auto marked = reducer->mark_ready(i); !marked) return complaint(marked);
                }
                const std::string expected =
                    step == 0 ? ""
                              : cat("gradient step ", step,
                                    ": the gradient of parameter \"p1\" has a NaN or an infinity on rank 2");
                const auto finished = complaint(reducer->finish());
                if (finished != expected) return cat("step ", step, " says: ", finished);
            }
            return {};
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("a gradient that is no number ends join() too, which can be called again where training goes on") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({4}), 0);
        auto options = bucket_each;
        options.finite_check = FiniteCheck::on;
        options.inputs = Inputs::uneven;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        int applied = 0, ended = 0;
        for (int step = 0; step < 4 && communicator.rank() == 0; ++step) {
            (void)reducer->begin_step();
            std::fill_n(static_cast<float*>(reducer->gradient(0).data), 4,
                        step == 1 ? std::numeric_limits<float>::infinity() : 1.0f);
            (void)reducer->mark_ready(0);
            ++(reducer->finish() ? applied : ended);
        }
        const auto apply = [&]() -> Result<void> {
            ++applied;
            return {};
        };
        for (auto joined = reducer->join(apply); !joined; joined = reducer->join(apply)) {
            if (complaint(joined).find("has a NaN or an infinity on rank 0") == std::string::npos || ++ended > 1)
                return complaint(joined);
        }
        return applied == 3 && ended == 1 ? std::string() : cat(applied, " applied, ", ended, " ended");
    });
    CHECK(wrong == "");
}

TEST_CASE("a NaN is found in whatever bucket it is, also one that is rarely sent, and is forgotten with its step") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({4, 4, 4, 4}), 0);
        auto options = bucket_each;
        options.finite_check = FiniteCheck::on;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        // Parameter 1 is not used in the first steps, so its bucket is no longer sent with the others.
        const std::map<int, int> bad_in_step{{6, 1}, {8, 0}, {9, 3}, {11, 2}};
        for (int step = 0; step < 13; ++step) {
            (void)reducer->begin_step();
            const auto found = bad_in_step.find(step);
            const int bad = found == bad_in_step.end() ? -1 : found->second;
            for (const int i : {3, 2, 1, 0}) {
                if (i == 1 && bad != 1) continue;
                auto* const gradient = static_cast<float*>(reducer->gradient(i).data);
                std::fill_n(gradient, 4, 1.0f);
                if (i == bad && communicator.rank() == 1) gradient[0] = std::numeric_limits<float>::infinity();
                if (auto marked = reducer->mark_ready(i); !marked) return complaint(marked);
            }
            const std::string expected = bad < 0 ? ""
                                                 : cat("gradient step ", step, ": the gradient of parameter \"p", bad,
                                                       "\" has a NaN or an infinity on rank 1");
            const auto finished = complaint(reducer->finish());
            if (finished != expected) return cat("step ", step, " says: ", finished);
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("what lies in the memory of a parameter that nobody uses any more is no gradient") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({4, 4, 4}), 0);
        auto options = bucket_each;
        options.finite_check = FiniteCheck::on;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        for (int step = 0; step < 6; ++step) {
            (void)reducer->begin_step();
            for (const int i : {2, 0}) {
                std::fill_n(static_cast<float*>(reducer->gradient(i).data), 4, i == 0 ? 3.0f : 4.0f);
                (void)reducer->mark_ready(i);
            }
            // By then its bucket is no longer sent.
            const float left = step == 4 ? 1000 : std::numeric_limits<float>::quiet_NaN();
            if (step >= 4) static_cast<float*>(reducer->gradient(1).data)[0] = left;
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            const auto norm = reducer->clip_grad_norm(11);
            if (!norm || *norm != 10) return cat("step ", step, ": the norm is not 10, ", complaint(norm));
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("clip_grad_norm scales all gradients by one factor, and only when their norm is too large") {
    const auto wrong = alone([](GradientReducer& reducer) -> std::string {
        (void)reducer.begin_step();
        for (const int i : {2, 0}) {
            auto* const gradient = static_cast<float*>(reducer.gradient(i).data);
            std::fill_n(gradient, 4, i == 0 ? 3.0f : 4.0f);
            (void)reducer.mark_ready(i);
        }
        // Written, but not marked: nobody used it, and it does not count.
        static_cast<float*>(reducer.gradient(1).data)[0] = 1000;
        if (auto finished = reducer.finish(); !finished) return complaint(finished);
        if (complaint(reducer.clip_grad_norm(0)).empty()) return "a norm of 0 was accepted";
        if (*reducer.clip_grad_norm(10.5) != 10) return "the norm is not 10";
        if (*static_cast<float*>(reducer.gradient(0).data) != 3) return "a small norm was clipped";
        if (*reducer.clip_grad_norm(5) != 10) return "the norm is not 10";
        if (*static_cast<float*>(reducer.gradient(0).data) != 1.5f) return "p0 was not halved";
        if (*static_cast<float*>(reducer.gradient(2).data) != 2) return "p2 was not halved";
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("clip_grad_norm() takes the norm over gradients of every type, and leaves one that is no number alone") {
    ThreadGroup group(1);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        auto listed = f32_parameters({1, 1, 1});
        listed[1].type = DataType::f64;
        listed[2].type = DataType::bf16;
        const OwnedParameters parameters(listed, 0);
        auto reducer = GradientReducer::make(communicator, parameters.list());
        if (!reducer) return complaint(reducer);
        const auto step = [&](float first) {
            (void)reducer->begin_step();
            *static_cast<float*>(reducer->gradient(0).data) = first;
            *static_cast<double*>(reducer->gradient(1).data) = 4;
            *static_cast<std::uint16_t*>(reducer->gradient(2).data) = 0x4140;  // 12
            for (const int i : {0, 1, 2}) (void)reducer->mark_ready(i);
            return reducer->finish();
        };
        if (auto finished = step(3); !finished) return complaint(finished);
        if (const auto norm = reducer->clip_grad_norm(6.5); !norm || *norm != 13) return "the norm is not 13";
        if (*static_cast<double*>(reducer->gradient(1).data) != 2) return "the f64 gradient was not halved";
        if (auto finished = step(std::numeric_limits<float>::quiet_NaN()); !finished) return complaint(finished);
        if (const auto norm = reducer->clip_grad_norm(1); !norm || !std::isnan(*norm)) return "the norm is a number";
        return *static_cast<double*>(reducer->gradient(1).data) == 4 ? ""
                                                                     : "gradients were scaled by what is no number";
    });
    CHECK(wrong == "");
}
