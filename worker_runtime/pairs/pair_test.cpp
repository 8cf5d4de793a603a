#include "worker_runtime/pairs/pair_test.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/met_group.h"
#include "worker_runtime/pairs/sent_segments.h"

namespace muster::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t small_count = 16, large_count = std::size_t{1} << 20;  // of 4 bytes
constexpr int small_repeats = 20, large_repeats_min = 3, large_repeats_max = 32;
/// Large messages go on so long, to count packets that are lost; and longer where one was lost.
constexpr Duration large_enough = 600ms, large_if_lossy = 2s;
constexpr std::string_view partner_failed = "the other node of the pair failed";

/// The time of one all-reduce in microseconds, or its failure.
template <class Number>
Result<long> timed(Communicator& pair, std::vector<Number>& values) {
    const auto before = Clock::now();
    const auto done = pair.run(all_reduce(buffer(std::span(values)), ReduceOp::max), pair_step_limit);
    if (!done) return done.error();
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - before).count();
}

/// Right after a small message both ranks read their clocks within its latency.
Result<std::int64_t> compare_clocks(Communicator& pair, bool is_first) {
    std::vector<double> clocks{0, 0};
    clocks[is_first ? 0 : 1] = static_cast<double>(wall_clock_ms());
    const auto took = timed(pair, clocks);
    if (!took) return took.error();
    return static_cast<std::int64_t>(clocks[1] - clocks[0]);
}

/// Of several large messages the best speed, in MB/s. Both ranks stop after the same one: when neither wants more.
Result<int> move_large(Communicator& pair, const SentByConnection& before) {
    std::vector<float> large(large_count);
    int best = 0;
    const auto begin = Clock::now();
    for (int i = 1; i <= large_repeats_max; ++i) {
        const auto limit = sent_since(before, sent_segments()).lost() > 0 ? large_if_lossy : large_enough;
        large[0] = i < large_repeats_min || Clock::now() - begin < limit ? 1.0F : 0.0F;
        const auto took = timed(pair, large);
        if (!took) return took.error();
        best = std::max(best, static_cast<int>(static_cast<long>(large_count * sizeof(float)) / std::max(*took, 1L)));
        if (large[0] == 0) break;
    }
    return best;
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
    constexpr std::string_view no_small = "connected, but small messages do not pass";
    PairResult result;
    std::vector<float> small(small_count);
    std::vector<long> times;
    for (int i = 0; i < small_repeats; ++i) {
        const auto took = timed(**pair, small);
        if (!took) return failed(no_small, took.error());
        times.push_back(*took);
    }
    std::ranges::nth_element(times, times.begin() + small_repeats / 2);
    result.latency_us = static_cast<int>(times[small_repeats / 2]);
    const auto clocks = compare_clocks(**pair, terms.is_first);
    if (!clocks) return failed(no_small, clocks.error());
    result.clock_ms = *clocks;
    const auto before = sent_segments();
    const auto speed = move_large(**pair, before);
    if (!speed)
        return failed("small messages pass, but 4 MiB do not: full packets are lost (MTU), or the path is very slow",
                      speed.error());
    result.mbytes_per_s = *speed;
    // The other node reports what it has twice before it answers this.
    if (const auto took = timed(**pair, small); !took) return failed(no_small, took.error());
    result.why = too_many_lost(sent_since(before, sent_segments()));
    result.passed = result.why.empty();
    return result;
}

/// What both ranks know after a try: "pass", "late" if a step met its limit, or "fail"; and the reason.
struct Word {
    std::string verdict = "late";
    std::string why;
};

/// The partner's word. A rank may have got the last message that its partner waits for in vain.
Word exchange(const PairTerms& terms, const std::string& name, const Word& own) {
    const auto deadline = Clock::now() + pair_step_limit;
    const auto key = [&](bool first) { return cat(name, first ? "/first" : "/second"); };
    if (!terms.place->publish(key(terms.is_first), cat(own.verdict, ' ', own.why), deadline)) return {};
    // The partner may still be in its last step.
    const auto told = terms.place->collect({key(!terms.is_first)}, {deadline + 2 * pair_step_limit, nullptr});
    if (!told) return {};
    const std::string_view text = told->front();
    const auto blank = text.find(' ');
    if (blank == std::string_view::npos) return {};
    return {std::string(text.substr(0, blank)), std::string(text.substr(blank + 1))};
}

}  // namespace

std::int64_t wall_clock_ms() {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

PairResult test_pair(const PairTerms& terms) {
    PairResult result;
    for (int i = 0; i < pair_tries && !result.passed; ++i) {
        const auto name = cat(terms.name, "/", i);
        const auto begin = Clock::now();
        result = measure(terms, name);
        const bool late = !result.passed && Clock::now() - begin >= pair_step_limit;
        const auto partner = exchange(terms, name, {result.passed ? "pass" : late ? "late" : "fail", result.why});
        if (result.passed && partner.verdict != "pass") {
            result.passed = false;
            result.why = partner.why.empty() ? std::string(partner_failed) : partner.why;
        }
        if (late || partner.verdict == "late") break;
    }
    return result;
}

}  // namespace muster::runtime
