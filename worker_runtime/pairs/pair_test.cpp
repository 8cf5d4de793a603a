#include "worker_runtime/pairs/pair_test.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/met_group.h"
#include "worker_runtime/pairs/sent_segments.h"

namespace muster::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t small_count = 16, large_count_max = std::size_t{1} << 20;  // of 4 bytes
/// 128 KiB for each node, where only the size of packets counts: slow networks are no fault there.
constexpr std::size_t large_count_by_address = std::size_t{1} << 15;
constexpr int small_repeats = 20, large_repeats_max = 32;
/// What shows first that a group is slow: so many messages of a part of the large one.
constexpr std::size_t first_part = 8;
constexpr int first_parts = 2;
/// Of a slow group only parts are sent, for so long.
constexpr Duration parts_enough = 150ms;
constexpr int parts_with_one_late = 4;
/// So many latencies at most go by until a connection that was idle sends at the speed of its path.
constexpr int latencies_to_speed = 10;
/// Large messages go on so long, to count packets that are lost; and longer where a pair lost one.
constexpr Duration large_enough = 600ms, large_if_lossy = 1800ms;
/// Small ones end earlier where the path is long.
constexpr Duration small_enough = 300ms, small_enough_by_address = 100ms;
/// No further message begins so near to the end of the test.
constexpr Duration last_message = 400ms;
/// Long enough for the kernel to call twice, and for one message. A cut network takes several such tests.
constexpr Duration pair_limit_by_address = 1500ms;
constexpr std::string_view partner_failed = "the other node of the pair failed";

/// The time of one all-reduce in microseconds, or its failure.
template <class Number>
Result<long> timed(Communicator& pair, std::vector<Number>& values) {
    const auto before = Clock::now();
    MUSTER_TRY(pair.run(all_reduce(buffer(std::span(values)), ReduceOp::max)));
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - before).count();
}

/// Right after a small message both ranks read their clocks within its latency.
Result<std::int64_t> compare_clocks(Communicator& pair, bool is_first) {
    std::vector<double> clocks{0, 0};
    clocks[is_first ? 0 : 1] = static_cast<double>(wall_clock_ms());
    MUSTER_TRY(timed(pair, clocks));
    return static_cast<std::int64_t>(clocks[1] - clocks[0]);
}

/// Repeats a message while one of both ranks `wants` more, as each tells the other in it. Returns all times.
Result<std::vector<long>> repeat(Communicator& pair, std::size_t count, int repeats_max, auto wants) {
    std::vector<float> values(count);
    std::vector<long> times;
    for (int i = 1; i <= repeats_max; ++i) {
        values[0] = wants() ? 1.0F : 0.0F;
        times.push_back(MUSTER_TRY(timed(pair, values)));
        if (values[0] == 0) break;
    }
    return times;
}

/// Ends the operations of a pair at its deadline. An operation that met a deadline of its own would ask the other rank
/// for the reason, for up to 1.8 s more.
class EndAt {
  public:
    EndAt(Communicator& pair, Instant deadline, Duration limit)
        : thread_([&pair, deadline, limit](const std::stop_token& stop) {
              std::mutex mutex;
              std::unique_lock lock(mutex);
              std::condition_variable_any().wait_until(lock, stop, deadline, [] { return false; });
              if (!stop.stop_requested()) pair.abort(cat("the test takes longer than ", describe(limit)));
          }) {}

  private:
    std::jthread thread_;
};

/// The size of a group's large message. A group that is slow is tested in many rounds (group_search.h), and moves only
/// a part of it in each. All ranks get the same answer.
Result<std::size_t> large_count_of_group(Communicator& group, int latency_us) {
    constexpr auto part = large_count_max / first_part;
    const auto times = MUSTER_TRY(repeat(group, part, first_parts, [] { return true; }));
    const auto moving = std::ranges::max(times) - long{latencies_to_speed} * latency_us;
    std::vector<float> slow(small_count,
                            std::chrono::microseconds(long{first_part} * moving) > large_enough ? 1.0F : 0.0F);
    MUSTER_TRY(timed(group, slow));
    return slow[0] > 0 ? part : large_count_max;
}

/// What a slow group lets pass at once is not its speed, so its best part does not count. One part of several may have
/// waited for a segment that was sent again.
long mean_of_parts(const std::vector<long>& times) {
    const bool leave_one_out = std::ssize(times) >= parts_with_one_late;
    const auto sum = std::accumulate(times.begin(), times.end(), 0L) - (leave_one_out ? std::ranges::max(times) : 0);
    return sum / (std::ssize(times) - (leave_one_out ? 1 : 0));
}

PairResult measure(const PairTerms& terms, const std::string& name, Instant begin, Duration limit) {
    const auto deadline = begin + limit;
    const bool is_judged = terms.address.empty();
    const auto failed = [](std::string_view stage, const Error& error) {
        return PairResult{.passed = false, .why = cat(stage, ": ", error.context)};
    };
    const auto size = terms.ranks.size();
    auto pair = MetGroups::of_process().open({.name = name,
                                              .rank = terms.number,
                                              .size = static_cast<int>(size),
                                              .world_ranks = terms.ranks,
                                              .place = terms.place,
                                              .address = terms.address,
                                              .meeting_timeout = std::max<Duration>(deadline - Clock::now(), 1ms),
                                              .operation_timeout = 2 * pair_limit,
                                              .transport = TransportChoice::tcp});
    if (!pair) return failed(no_connection, pair.error());
    const EndAt end(**pair, deadline, limit);
    constexpr std::string_view no_small = "connected, but small messages do not pass";
    PairResult result;
    const auto small_end = Clock::now() + (is_judged ? small_enough : small_enough_by_address);
    auto times = repeat(**pair, small_count, small_repeats, [&] { return Clock::now() < small_end; });
    if (!times) return failed(no_small, times.error());
    const auto middle = times->begin() + static_cast<std::ptrdiff_t>(times->size() / 2);
    std::ranges::nth_element(*times, middle);
    result.latency_us = static_cast<int>(*middle);
    const auto clocks = compare_clocks(**pair, terms.number == 0);
    if (!clocks) return failed(no_small, clocks.error());
    result.clock_ms = *clocks;

    const auto before = sent_segments();
    std::vector<std::int64_t> rates;
    constexpr std::string_view no_large =
        "small messages pass, but large ones do not: full packets are lost (MTU), or the path is very slow";
    auto large_count = is_judged ? large_count_max : large_count_by_address * size;
    if (is_judged && size > 2) {
        const auto chosen = large_count_of_group(**pair, result.latency_us);
        if (!chosen) return failed(no_large, chosen.error());
        large_count = *chosen;
    }
    const bool only_parts = is_judged && large_count < large_count_max;
    const auto large_begin = Clock::now();
    const auto large = repeat(**pair, large_count, is_judged ? large_repeats_max : 1, [&] {
        const auto sent = sent_since(before, sent_segments());
        rates.push_back(sent.bytes_per_s);
        const auto enough = only_parts ? parts_enough : size == 2 && sent.lost() > 0 ? large_if_lossy : large_enough;
        return Clock::now() < std::min(large_begin + enough, deadline - last_message);
    });
    if (!large) return failed(no_large, large.error());
    const auto best = std::max(only_parts ? mean_of_parts(*large) : std::ranges::min(*large), 1L);
    // Each node sends a part to each other one, and then the sum of its own part.
    const auto moved = 2 * (size - 1) * large_count * sizeof(float) / size;
    result.mbytes_per_s = static_cast<int>(static_cast<long>(moved) / best);
    const auto median = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::ranges::nth_element(rates, median);
    result.link_mbytes_per_s = static_cast<int>(*median / 1'000'000);
    // The other node reports what it has twice before it answers this.
    const auto settled = repeat(**pair, small_count, 1, [] { return false; });
    if (!settled) return failed(no_small, settled.error());
    const auto sent = sent_since(before, sent_segments());
    result.sees_losses = sent.data > 0 && sent.sees_losses;
    if (size == 2 && is_judged) result.why = too_many_lost(sent, terms.lost_permille);
    result.passed = result.why.empty();
    return result;
}

/// What both ranks know after a try: "pass", "late" if there is no time for another one, or "fail"; and the reason.
struct Word {
    std::string verdict = "late";
    std::string why;
};

/// The partner's word. A rank may have got the last message that its partner waits for in vain.
Word exchange(const PairTerms& terms, const std::string& name, const Word& own, Instant deadline) {
    const auto key = [&](bool first) { return cat(name, first ? "/first" : "/second"); };
    const bool is_first = terms.number == 0;
    if (!terms.place->publish(key(is_first), cat(own.verdict, ' ', own.why), deadline)) return {};
    const auto told = terms.place->collect({key(!is_first)}, {deadline, nullptr});
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
    const auto begin = Clock::now();
    const auto limit = terms.address.empty() ? pair_limit : pair_limit_by_address;
    for (int i = 0; i < pair_tries && !result.passed; ++i) {
        const auto name = cat(terms.name, "/", i);
        result = measure(terms, name, begin, limit);
        const bool late = !result.passed && Clock::now() - begin >= limit / 2;
        const Word own{result.passed ? "pass" : late ? "late" : "fail", result.why};
        const auto partner = exchange(terms, name, own, begin + limit + partner_slack);
        if (result.passed && partner.verdict != "pass") {
            result.passed = false;
            result.why = partner.why.empty() ? std::string(partner_failed) : partner.why;
        }
        if (late || partner.verdict == "late") break;
    }
    return result;
}

PairResult test_group(const PairTerms& terms) {
    return measure(terms, terms.name, Clock::now(), pair_limit);
}

}  // namespace muster::runtime
