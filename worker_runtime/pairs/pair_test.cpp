#include "worker_runtime/pairs/pair_test.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/met_group.h"

namespace muster::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t small_count = 16, large_count = std::size_t{1} << 20;  // of 4 bytes
constexpr int small_repeats = 20, large_repeats = 3;

/// The time of one all-reduce in microseconds, or its failure.
Result<long> timed(Communicator& pair, std::vector<float>& values) {
    const auto before = Clock::now();
    const auto done = pair.run(all_reduce(buffer(std::span(values)), ReduceOp::max), pair_step_limit);
    if (!done) return done.error();
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - before).count();
}

PairResult measure(const PairTerms& terms, const std::string& name) {
    const auto failed = [](std::string_view stage, const Error& error) {
        return PairResult{.passed = false, .why = cat(stage, ": ", error.context)};
    };
    auto pair = MetGroups::of_process().open({.name = name,
                                              .rank = terms.is_first ? 0 : 1,
                                              .size = 2,
                                              .world_ranks = {terms.ranks.first, terms.ranks.second},
                                              .place = terms.place,
                                              .meeting_timeout = pair_step_limit,
                                              .operation_timeout = pair_step_limit,
                                              .transport = TransportChoice::tcp});
    if (!pair) return failed("no connection", pair.error());
    PairResult result;
    std::vector<float> small(small_count), large(large_count);
    std::vector<long> times;
    for (int i = 0; i < small_repeats; ++i) {
        const auto took = timed(**pair, small);
        if (!took) return failed("connected, but small messages do not pass", took.error());
        times.push_back(*took);
    }
    std::ranges::nth_element(times, times.begin() + small_repeats / 2);
    result.latency_us = static_cast<int>(times[small_repeats / 2]);
    for (int i = 0; i < large_repeats; ++i) {
        const auto took = timed(**pair, large);
        if (!took)
            return failed(
                "small messages pass, but 4 MiB do not: full packets are lost (MTU), or the path is very slow",
                took.error());
        const auto speed = static_cast<long>(large_count * sizeof(float)) / std::max(*took, 1L);
        result.mbytes_per_s = std::max(result.mbytes_per_s, static_cast<int>(speed));
    }
    result.passed = true;
    return result;
}

/// Whether the partner's try passed too. A rank may have got the last message that its partner waits for in vain.
bool agree(const PairTerms& terms, const std::string& name, bool passed) {
    const auto deadline = Clock::now() + pair_step_limit;
    const auto key = [&](bool first) { return cat(name, first ? "/first" : "/second"); };
    if (!terms.place->publish(key(terms.is_first), passed ? "1" : "0", deadline)) return false;
    // The partner may still be in its last step.
    const auto told = terms.place->collect({key(!terms.is_first)}, {deadline + 2 * pair_step_limit, nullptr});
    return told && told->front() == "1" && passed;
}

}  // namespace

PairResult test_pair(const PairTerms& terms) {
    PairResult result;
    for (int i = 0; i < pair_tries && !result.passed; ++i) {
        const auto name = cat(terms.name, "/", i);
        result = measure(terms, name);
        const bool both = agree(terms, name, result.passed);
        if (result.passed && !both) result = {.passed = false, .why = "the other node of the pair failed"};
    }
    return result;
}

}  // namespace muster::runtime
