#include "rendezvous/rounds/ledgers/step_ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

namespace muster::rendezvous {

namespace {

using native::SeenWorker;
using native::StepTally;

/// A worker that was started again counts from 0.
std::uint64_t grown(std::uint64_t before, std::uint64_t now) {
    return now >= before ? now - before : now;
}

/// Agents may say anything.
void add(std::uint64_t& sum, std::uint64_t more) {
    sum += std::min(more, UINT64_MAX - sum);
}

void add(Duration& sum, Duration more) {
    sum += std::min(more, Duration::max() - sum);
}

Duration time_of(std::uint64_t ns) {
    constexpr auto most = static_cast<std::uint64_t>(Duration(31 * 24h).count());
    return Duration(static_cast<Duration::rep>(std::min(ns, most)));
}

StepTally tally_of(std::int32_t rank, const std::vector<SeenWorker>& workers) {
    const auto found = std::ranges::find_if(workers, [rank](const auto& one) { return one.at.rank == rank; });
    return found == workers.end() ? StepTally{} : found->tally;
}

double share(std::uint64_t part, std::uint64_t whole) {
    return std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

void StepLedger::begin_round() {
    nodes_.clear();
    tally_ = StepTally{};
    times_.clear();
    checkpoint_step_ = data_wait_ms_ = -1;
    sections_.clear();
    rank_count_ = waiting_count_ = overdue_count_ = 0;
    hangs_ = false;
}

StepLedger::News StepLedger::take(Incarnation from, const std::vector<SeenWorker>& before,
                                  const native::WorkersSeen& seen, std::uint32_t node_count) {
    News news;
    raise_to(sections_, seen.sections);
    if (seen.workers.empty()) return news;
    Node node;
    // Of many workers `workers` has those that wait, which may look like all of them. Ended ones are in no count.
    node.rank_count = std::max(seen.counts.sum(), std::uint64_t{seen.workers.size()});
    node.waiting_count = seen.counts.waiting;
    node.overdue_count = seen.counts.overdue;
    for (const auto& worker : seen.workers) {
        const auto rank = worker.at.rank;
        const auto then = tally_of(rank, before);
        const auto& now = worker.tally;
        if (rank == 0) count_rank_0(now, seen.step_times, news);
        if (now.measured_ns == 0) continue;
        if (now.data_wait_ns > 0) data_wait_ms_ = std::max(data_wait_ms_, time_of(now.data_wait_ns) / 1ms);
        const auto measured = grown(then.measured_ns, now.measured_ns);
        if (measured == 0) continue;
        ++node.measured_count;
        node.exposed += share(grown(then.exposed_ns, now.exposed_ns), measured);
        const auto late = share(grown(then.late_ns, now.late_ns), measured);
        node.late += late;
        if (node.late_rank >= 0 && late <= node.late_max) continue;
        node.late_max = late;
        node.late_rank = rank;
    }
    // Anybody may say that he is of a round that this daemon has not sealed.
    if (nodes_.size() >= node_count && !nodes_.contains(from)) return news;
    auto& kept = nodes_[from];
    rank_count_ += node.rank_count - kept.rank_count;
    waiting_count_ += node.waiting_count - kept.waiting_count;
    overdue_count_ += node.overdue_count - kept.overdue_count;
    // A node that measured no step since its last report keeps its shares.
    if (node.measured_count == 0) {
        node.exposed = kept.exposed;
        node.late = kept.late;
        node.late_max = kept.late_max;
        node.late_rank = kept.late_rank;
        node.measured_count = kept.measured_count;
    }
    kept = node;
    news.hang = judge(node_count);
    return news;
}

void StepLedger::count_rank_0(const StepTally& now, const std::vector<native::StepTimeCount>& times, News& news) {
    const bool counted_before = tally_.has_value();
    const auto before = std::exchange(tally_, now).value_or(now);
    const auto steps = grown(before.step_count, now.step_count);
    const auto samples = grown(before.sample_count, now.sample_count);
    const auto time = time_of(grown(before.step_ns, now.step_ns));
    add(sums_.step_count, steps);
    add(sums_.sample_count, samples);
    add(sums_.step_time, time);
    if (steps > 0 && time > Duration::zero()) {
        const auto seconds = std::chrono::duration<double>(time).count();
        sums_.step_seconds = seconds / static_cast<double>(steps);
        if (samples > 0) sums_.samples_per_second = static_cast<double>(samples) / seconds;
    }
    for (std::size_t i = 0; counted_before && i < times.size() && i < step_time_bucket_count; ++i)
        add(sums_.times[i], grown(i < times_.size() ? times_[i].count : 0, times[i].count));
    if (!times.empty()) times_ = times;
    news.checkpoint_failure_count = grown(before.checkpoint_failure_count, now.checkpoint_failure_count);
    add(sums_.checkpoint_failure_count, news.checkpoint_failure_count);
    if (now.checkpoint_step <= checkpoint_step_) return;
    checkpoint_step_ = now.checkpoint_step;
    if (counted_before) news.checkpoint_step = now.checkpoint_step;
}

/// One rank may wait for long without harm: for another one's checkpoint, or for a straggler. It is a hang if ranks
/// wait for one that does nothing, or if all of them wait.
StepLedger::Hang StepLedger::judge(std::uint32_t node_count) {
    const bool all_wait = waiting_count_ == rank_count_ && rank_count_ > 1 && nodes_.size() >= node_count;
    const bool hangs = waiting_count_ > 0 && (overdue_count_ > 0 || all_wait);
    if (hangs == hangs_) return Hang::no_change;
    hangs_ = hangs;
    return hangs ? Hang::suspected : Hang::over;
}

/// As Prometheus's histogram_quantile has it: the steps of a bucket are spread evenly.
std::optional<Duration> StepLedger::median_step() const {
    auto below = static_cast<double>(std::accumulate(sums_.times.begin(), sums_.times.end(), std::uint64_t{})) / 2;
    if (below <= 0) return std::nullopt;
    Duration from{};
    for (std::size_t i = 0; i < step_time_bounds.size(); from = step_time_bounds[i++]) {
        const auto count = static_cast<double>(sums_.times[i]);
        if (count >= below)
            return from +
                   Duration(std::llround(below / count * static_cast<double>((step_time_bounds[i] - from).count())));
        below -= count;
    }
    return from;
}

StepSummary StepLedger::summary() const {
    auto summary = sums_;
    double exposed = 0, late = 0, late_max = 0;
    std::uint64_t count = 0;
    for (const auto& [incarnation, node] : nodes_) {
        exposed += node.exposed;
        late += node.late;
        count += node.measured_count;
        if (node.measured_count == 0 || (summary.slowest_rank >= 0 && node.late_max <= late_max)) continue;
        late_max = node.late_max;
        summary.slowest_rank = node.late_rank;
    }
    if (count == 0) return summary;
    summary.exposed = exposed / static_cast<double>(count);
    summary.straggler_cost = std::max(0.0, late_max - late / static_cast<double>(count));
    return summary;
}

}  // namespace muster::rendezvous
