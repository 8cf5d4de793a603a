// Groups the workers that made no progress when a round ended by their position, over all nodes: a thousand ranks that
// wait in one collective are one line, and the rank that did not join it is another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/rounds/ledgers/rank_ranges.h"
#include "rendezvous/wire/native/worker_activity.h"

namespace muster::rendezvous {

class ActivityLedger {
  public:
    /// What the same place is: the operation, inside or after it, and the line. State, unless a signal has stopped it,
    /// and idleness differ by chance.
    /// Those that were lost with their node (idle_ms is 0) stand apart, each node's together.
    struct Kept {
        std::string host;
        WorkerActivity first;
        std::uint32_t count = 0;
        std::vector<RankRange> ranges;
    };
    static constexpr std::size_t groups_max = 16;

    ActivityLedger() = default;
    /// From the one before; of groups that are one, or too many, the first count.
    explicit ActivityLedger(std::vector<Kept> kept);
    [[nodiscard]] std::vector<Kept> kept() const;

    /// Where there is no room for another place, one that is inside an operation gives way to one that is not.
    void add(const std::string& host, WorkerActivity worker);
    [[nodiscard]] bool empty() const { return groups_.empty(); }
    /// Another one after each change; 0: empty.
    [[nodiscard]] std::uint64_t revision() const { return revision_; }
    /// Those outside of operations first, then the smaller ones: who is missing is mostly alone.
    [[nodiscard]] std::vector<ActivityGroup> list() const;

  private:
    struct Group {
        std::string host;
        WorkerActivity first;
        std::uint32_t count = 0;
        RankRanges ranges;
    };
    static bool is_same_place(const Group& group, const std::string& host, const WorkerActivity& worker);
    bool make_room(const WorkerActivity& worker);

    std::vector<Group> groups_;
    std::uint64_t revision_ = 0;
};

}  // namespace muster::rendezvous
