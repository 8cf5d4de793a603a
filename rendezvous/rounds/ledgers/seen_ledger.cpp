#include "rendezvous/rounds/ledgers/seen_ledger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/ledgers/activity_ledger.h"
#include "rendezvous/wire/native/limits.h"
#include "rendezvous/wire/native/who_is_missing.h"

namespace muster::rendezvous {

using native::JobLine;
using native::JobSeen;
using native::SeenWorker;
using native::WaitingWorker;
using native::WorkerPace;

namespace {

/// The words of several nodes are looked at together.
constexpr Duration gathered_for = 500ms;
/// A rack that hangs is a line or a few, and ten thousand nodes hear of it in one message each.
constexpr Duration log_interval = 10s;
/// An agent speaks every ten seconds, and at once when one of its workers is overdue, waits, or is no longer so.
constexpr Duration sent_recently = 15s;
/// As for the workers of one node (agent/diagnosis/hang_watch.h).
constexpr Duration straggler_window = 60s;
constexpr double straggler_percent = 20;
/// As many ranks as all nodes of a job can tell of.
constexpr std::size_t shares_max = native::peers_max * native::activities_max;

std::string sentence(const ActivityGroup& group, const std::optional<WaitingWorker>& waiting) {
    const auto& one = group.first;
    const auto named = group.count == 1 ? cat("rank ", one.rank, " (pid ", one.pid, ") on ", group.host)
                                        : cat("ranks ", group.ranks, " (", group.count, " workers; rank ", one.rank,
                                              " is pid ", one.pid, " on ", group.host, ')');
    return cat(named, ' ', native::idle_sentence(one, group.count, waiting));
}

/// Of those that still wait, the lowest rank: which one it is does not depend on whose words came first.
std::optional<WaitingWorker> waiting_one(const std::vector<SeenLedger::Node>& nodes, Instant now) {
    std::optional<WaitingWorker> first;
    for (const auto& node : nodes) {
        if (now - node.received_at > sent_recently) continue;
        for (const auto& worker : node.workers)
            if (worker.pace == WorkerPace::waiting && (!first || worker.at.rank < first->rank))
                first = WaitingWorker{node.host, worker.at.rank, worker.at.pid, worker.at.operation};
    }
    return first;
}

}  // namespace

void SeenLedger::note(const std::vector<SeenWorker>& workers, Instant now) {
    note_shares(workers, now);
    const bool suspicious =
        std::ranges::any_of(workers, [](const SeenWorker& worker) { return worker.pace != WorkerPace::usual; });
    if (suspicious) due_ = std::min(due_, now + gathered_for);
}

void SeenLedger::note_shares(const std::vector<SeenWorker>& workers, Instant now) {
    if (!shares_since_) shares_since_ = now;
    for (const auto& worker : workers) {
        const bool fits = shares_.size() < shares_max || shares_.contains(worker.at.rank);
        if (worker.inside_percent < 0 || !fits) continue;
        auto& share = shares_[worker.at.rank];
        share.percent_sum += worker.inside_percent;
        ++share.count;
    }
    if (now - *shares_since_ >= straggler_window) due_ = std::min(due_, now + gathered_for);
}

std::optional<JobSeen> SeenLedger::look(const std::vector<Node>& nodes, Instant now) {
    due_ = no_deadline;
    JobSeen said;
    name_missing(nodes, now, said);
    name_straggler(nodes, now, said);
    if (said.lines.empty()) return std::nullopt;
    return said;
}

void SeenLedger::name_missing(const std::vector<Node>& nodes, Instant now, JobSeen& said) {
    if (missing_logged_at_ && now - *missing_logged_at_ < log_interval) {
        due_ = *missing_logged_at_ + log_interval;
        return;
    }
    std::set<std::int32_t> overdue, named;
    ActivityLedger missing;
    for (const auto& node : nodes) {
        const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - node.received_at);
        for (const auto& worker : node.workers) {
            if (worker.pace != WorkerPace::overdue) continue;
            overdue.insert(worker.at.rank);
            if (told_.contains(worker.at.rank) || now - node.received_at > sent_recently) continue;
            auto at = worker.at;
            at.idle_ms += static_cast<std::uint32_t>(age.count());
            named.insert(at.rank);
            missing.add(node.host, std::move(at));
        }
    }
    std::erase_if(told_, [&](std::int32_t rank) { return !overdue.contains(rank); });
    auto waiting = missing.empty() ? std::nullopt : waiting_one(nodes, now);
    if (!waiting) return;
    for (const auto& group : missing.list())
        said.lines.push_back({group.count == 1 ? group.first.rank : -1, sentence(group, waiting)});
    said.waiting = std::move(waiting);
    missing_logged_at_ = now;
    told_.merge(named);
}

/// Whoever comes last to each collective is the one that is inside them for the shortest time.
void SeenLedger::name_straggler(const std::vector<Node>& nodes, Instant now, JobSeen& said) {
    if (!shares_since_ || now - *shares_since_ < straggler_window) return;
    shares_since_ = now;
    const auto shares = std::exchange(shares_, {});
    // Of one node the agent knows more. And where somebody does not come that is the news, and takes up the message.
    if (nodes.size() < 2 || shares.size() < 2 || !said.lines.empty()) return;
    double sum = 0, least = 100;
    std::int32_t straggler = -1;
    for (const auto& [rank, share] : shares) {
        const double percent = share.percent_sum / share.count;
        sum += percent;
        if (straggler >= 0 && percent >= least) continue;
        straggler = rank;
        least = percent;
    }
    const double cost = (sum - least) / static_cast<double>(shares.size() - 1) - least;
    const bool again = !straggler_logged_at_ || now - *straggler_logged_at_ >= straggler_window * 10;
    if (cost < straggler_percent || !again) return;
    for (const auto& node : nodes) {
        const auto found =
            std::ranges::find(node.workers, straggler, [](const auto& worker) { return worker.at.rank; });
        if (found == node.workers.end()) continue;
        straggler_logged_at_ = now;
        said.lines.push_back({-1, cat("rank ", straggler, " (pid ", found->at.pid, ") on ", node.host,
                                      " is a straggler: the other ranks of the job wait for it ", std::lround(cost),
                                      " % of their time")});
        return;  // another node that claims the same rank is wrong
    }
}

}  // namespace muster::rendezvous
