// The reducer over ranks that are threads: when it launches what, and what it learns.
#include "muster/gradient_reducer.h"

#include <algorithm>
#include <set>
#include <thread>

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/worker_runtime/reducer/reducer_story.h"
#include "worker_runtime/core/bucket_plan.h"

using namespace muster;
using namespace muster::test;

TEST_CASE("rank 0's parameters are everybody's at the start, and gradients begin as zero") {
    ThreadGroup group(3);
    const OwnedParameters root(eight(), 0);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), static_cast<std::uint64_t>(100 * communicator.rank()));
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        for (int i = 0; i < 8; ++i) {
            if (parameters.bytes(static_cast<std::size_t>(i)) != root.bytes(static_cast<std::size_t>(i))) {
                return cat("parameter ", i, " is not rank 0's");
            }
            if (!holds(reducer->gradient(i), std::vector<std::byte>(256))) return cat("gradient ", i, " is not zero");
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("the first bucket, the last one and all between them have the sizes that the options give") {
    constexpr double line_mb = 256.0 / (1 << 20);  // a parameter
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        const ReducerOptions options{
            .bucket_cap_mb = 4 * line_mb, .first_bucket_mb = line_mb, .last_bucket_mb = 2 * line_mb};
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        std::string found;
        for (const auto& bucket : reducer->buckets()) {
            for (const auto& slice : bucket.slices) found += cat(slice.parameter);
            found += " ";
        }
        return found == "7 6543 2 10 " ? std::string() : "the buckets are " + found;
    });
    CHECK(wrong == "");
}

TEST_CASE(
    "buckets are launched during the backward pass, in plan order, as soon as they and those before are complete") {
    ThreadGroup group(2);
    const auto launched = [&](std::size_t so_far, const std::string& when) {
        return group.wait_for_history(so_far) ? std::string()
                                              : cat(when, ": only ", group.history().size(), " launched");
    };
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        (void)communicator.run(barrier());
        if (communicator.rank() == 0) group.clear_history();
        (void)communicator.run(barrier());
        (void)reducer->begin_step();
        for (const int i : {7, 5, 4, 3}) (void)reducer->mark_ready(i);
        if (group.history().size() > 1) return "a bucket was launched before the one in front of it was complete";
        (void)reducer->mark_ready(6);
        if (auto few = launched(3, "after 7 6 5 4"); !few.empty()) return few;  // the barrier and two buckets
        (void)reducer->mark_ready(2);
        if (auto few = launched(4, "after 3 2"); !few.empty()) return few;
        (void)reducer->mark_ready(0);
        (void)reducer->mark_ready(1);
        return complaint(reducer->finish());
    });
    CHECK(wrong == "");
    const auto history = group.history();
    REQUIRE(history.size() == 6);  // barrier, four buckets, the control block
    for (std::size_t i = 1; i < 5; ++i) {
        CHECK(history[i].count == 128);
        CHECK((history[i].tag & 0xffff) == i - 1);
        CHECK(history[i].tag >> 16 == history[5].tag >> 16);
    }
    CHECK(history[5].type == DataType::u8);
    CHECK(history[5].count == 1 + 8 + 2 * 8);
}

TEST_CASE("after the first step buckets follow the order in which rank 0's gradients came") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        const std::vector<int> order{3, 1, 4, 0, 5, 7, 2, 6};
        for (int step = 0; step < 3; ++step) {
            const auto layout = reducer->begin_step();
            if (!layout) return complaint(layout);
            if ((*layout == Layout::moved) != (step == 1)) return cat("step ", step, " had the other layout");
            for (int i = 0; i < 8 && step == 1; ++i) {
                if (!holds(reducer->gradient(i), std::vector<std::byte>(256)))
                    return "a gradient that moved is not zero";
            }
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
            if (reinterpret_cast<std::uintptr_t>(bucket.gradients.data) % 4096 != 0)
                return "a bucket begins off a page";
            for (const auto& slice : bucket.slices) found += cat(slice.parameter);
        }
        return found == "31405726" ? std::string() : "the buckets' order is " + found;
    });
    CHECK(wrong == "");
    // A rank that still has the old plan would be told so: the tag is of the plan.
    std::set<std::uint32_t> plans;
    for (const auto& each : group.history())
        if (each.kind == OperationKind::all_reduce) plans.insert(each.tag >> 16);
    CHECK(plans.size() == 2);
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
        // The first two, and the one with new buckets.
        const auto costs = reducer->costs();
        return costs.left_out_count == 3 && costs.step_count == 7 ? std::string() : "the wrong steps are left out";
    });
    CHECK(complaint_of == "");

    // Four buckets; after three steps 3 and 2 lie in one that is not sent, but in step 7.
    CHECK(bucket_counts == std::vector<std::size_t>{4, 4, 4, 3, 3, 3, 3, 4, 3, 3});
}

TEST_CASE("ranks that run out of batches keep the others company, and all end with the same parameters") {
    ThreadGroup group(3);
    const std::vector<int> batches{2, 5, 0};
    std::vector<std::vector<float>> results(3);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
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
                if (auto begun = reducer->begin_step(static_cast<float>(rank + 1)); !begun) return complaint(begun);
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
    });
    CHECK(wrong == "");
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

TEST_CASE("what the trainer does after a step may fail in join() too, which then ends with that error") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters({1}), 0);
        auto options = small_buckets();
        options.inputs = Inputs::uneven;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        if (communicator.rank() == 1) {
            const auto joined = reducer->join([]() -> Result<void> { return Error{Errc::io, "the disk is full"}; });
            return complaint(joined) == "the disk is full" ? std::string() : "join() says: " + complaint(joined);
        }
        if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
        (void)reducer->mark_ready(0);
        return complaint(reducer->finish());
    });
    CHECK(wrong == "");
}

TEST_CASE("marks may come from several threads") {
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(f32_parameters(std::vector<std::int64_t>(200, 16)), 0);
        auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
        if (!reducer) return complaint(reducer);
        for (std::uint64_t step = 0; step < 10; ++step) {
            if (auto begun = reducer->begin_step(); !begun) return complaint(begun);
            const auto mark = [&](int first) {
                for (int i = first; i >= 0; i -= 2) {
                    write(reducer->gradient(i),
                          made_up(DataType::f32, 16, seed_of(step, communicator.rank(), static_cast<std::size_t>(i))));
                    (void)reducer->mark_ready(i);
                }
            };
            std::thread other(mark, 198);
            mark(199);
            other.join();
            if (auto finished = reducer->finish(); !finished) return complaint(finished);
            for (std::size_t i = 0; i < 200; ++i) {
                const auto expected = average(
                    DataType::f32,
                    {made_up(DataType::f32, 16, seed_of(step, 0, i)), made_up(DataType::f32, 16, seed_of(step, 1, i))},
                    {1, 1});
                if (!holds(reducer->gradient(static_cast<int>(i)), expected))
                    return cat("step ", step, ": parameter ", i);
            }
        }
        return {};
    });
    CHECK(wrong == "");
}

TEST_CASE("an order is not learned from steps with local passes, nor by a rank alone") {
    for (const int world : {1, 2}) {
        ThreadGroup group(world);
        const auto wrong = group.run([&](Communicator& communicator) -> std::string {
            const OwnedParameters parameters(eight(), 0);
            auto reducer = GradientReducer::make(communicator, parameters.list(), small_buckets());
            if (!reducer) return complaint(reducer);
            for (int step = 0; step < 4; ++step) {
                if (world > 1) {
                    const auto local = reducer->begin_local_step();
                    if (!local || *local == Layout::moved) return cat("new buckets in local step ", step);
                    for (int i = 7; i >= 0; --i) (void)reducer->mark_ready(i);
                    (void)reducer->finish();
                }
                const auto layout = reducer->begin_step();
                if (!layout) return complaint(layout);
                if (*layout == Layout::moved) return cat("new buckets in step ", step);
                for (int i = 0; i < 8; ++i) (void)reducer->mark_ready(i);
                if (auto finished = reducer->finish(); !finished) return complaint(finished);
            }
            return {};
        });
        CHECK(wrong == "");
    }
}

TEST_CASE("a cap chosen by measurement is a sensible one, and said") {
    constexpr std::size_t mib = std::size_t{1} << 20;
    CHECK(runtime::caps_for(50us, 1e9, {}).cap_bytes == mib);
    CHECK(runtime::caps_for(100us, 10e9, {}).cap_bytes == 19 * mib);  // 20 MB
    CHECK(runtime::caps_for(100us, 10e9, {}).first_bytes == 19 * mib / 8);
    CHECK(runtime::caps_for(1s, 10e9, {}).cap_bytes == 256 * mib);
    CHECK(runtime::caps_for(1ns, 1e9, {.pieces = 3}).pieces == 3);
    ThreadGroup group(2);
    const auto wrong = group.run([&](Communicator& communicator) -> std::string {
        const OwnedParameters parameters(eight(), 0);
        ReducerOptions options;
        options.bucket_cap_mb = ReducerOptions::automatic;
        auto reducer = GradientReducer::make(communicator, parameters.list(), options);
        if (!reducer) return complaint(reducer);
        const auto text = reducer->description();
        const bool said = text.starts_with("8 parameters, 0 MiB in 1 buckets (cap ") &&
                          text.ends_with(" MiB, chosen by measurement), wire same, 2 ranks over threads") &&
                          text.find("(cap 0 ") == std::string::npos;
        return said ? std::string() : text;
    });
    CHECK(wrong == "");
    // Each rank has measured something else: rank 0's numbers are everybody's.
    const auto history = group.history();
    CHECK(std::count_if(history.begin(), history.end(), [](const Operation& each) {
              return each.kind == OperationKind::broadcast && each.type == DataType::i64 && each.count == 2;
          }) == 1);
}
