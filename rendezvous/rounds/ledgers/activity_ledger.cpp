#include "rendezvous/rounds/ledgers/activity_ledger.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace muster::rendezvous {

ActivityLedger::ActivityLedger(std::vector<Kept> kept) {
    for (auto& group : kept)
        groups_.push_back({std::move(group.host), std::move(group.first), group.count, RankRanges(group.ranges)});
    revision_ = groups_.size();
}

std::vector<ActivityLedger::Kept> ActivityLedger::kept() const {
    std::vector<Kept> all;
    for (const auto& group : groups_) all.push_back({group.host, group.first, group.count, group.ranges.kept()});
    return all;
}

bool ActivityLedger::is_same_place(const Group& group, const std::string& host, const WorkerActivity& worker) {
    const auto& first = group.first;
    const bool lost = worker.idle_ms == 0;
    if (lost || first.idle_ms == 0) return lost == (first.idle_ms == 0) && group.host == host;
    // A signal may stop one in the midst of what the others wait in: it is the one to be told of.
    constexpr std::string_view stopped = "stopped by a signal";
    if (first.state.starts_with(stopped) != worker.state.starts_with(stopped)) return false;
    return first.inside == worker.inside && first.operation == worker.operation && first.place == worker.place;
}

bool ActivityLedger::make_room(const WorkerActivity& worker) {
    if (groups_.size() < groups_max) return true;
    const auto waiting = std::ranges::find_if(groups_, [](const Group& group) { return group.first.inside; });
    if (worker.inside || waiting == groups_.end()) return false;
    groups_.erase(waiting);
    return true;
}

void ActivityLedger::add(const std::string& host, WorkerActivity worker) {
    auto group = std::ranges::find_if(groups_, [&](const Group& other) { return is_same_place(other, host, worker); });
    if (group == groups_.end()) {
        if (!make_room(worker)) return;
        group = groups_.insert(groups_.end(), Group{host, worker, 0, {}});
    }
    if (!group->ranges.add(worker.rank)) return;  // said again
    ++revision_;
    ++group->count;
    if (worker.rank < group->first.rank) {
        group->host = host;
        group->first = std::move(worker);
    }
}

std::vector<ActivityGroup> ActivityLedger::list() const {
    std::vector<ActivityGroup> all;
    for (const auto& group : groups_)
        all.push_back({group.host, group.first, group.ranges.text(group.count), group.count});
    // By rank in the end, so that the order in which nodes report makes no difference.
    std::ranges::sort(all, [](const auto& a, const auto& b) {
        return std::tuple(a.first.inside, a.count, a.first.rank) < std::tuple(b.first.inside, b.count, b.first.rank);
    });
    return all;
}

}  // namespace muster::rendezvous
