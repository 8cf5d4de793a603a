// Where workers stood when their round ended: told of those that had done nothing for some time, so that every node's
// report can name the rank that did not come, what it was doing, and what the others waited in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

/// One worker, as its own agent saw it.
struct WorkerActivity {
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    std::uint32_t idle_ms = 0;  ///< it had done nothing for so long; 0: it was busy, or is lost and `state` says more
    std::string state;          ///< "asleep in futex_wait_queue"
    bool inside = false;        ///< `operation` is under way; else it was its last one
    std::string operation;      ///< "all_reduce 41 of world"; empty: it has no flight record
    std::string place;          ///< "step (train.py:31)"; empty: not known

    friend bool operator==(const WorkerActivity&, const WorkerActivity&) = default;
};

/// Workers of one round that stood in the same place: the same operation, inside or after it, and the same line.
struct ActivityGroup {
    std::string host;         ///< of `first`
    WorkerActivity first;     ///< that of its lowest rank
    std::string ranks;        ///< "0-7,12"
    std::uint32_t count = 0;  ///< workers

    friend bool operator==(const ActivityGroup&, const ActivityGroup&) = default;
};

/// Of one node: "rank 3", or "ranks 4 to 5".
std::string ranks_of_node(std::uint32_t first, std::uint32_t count);

/// "rank 3 on gpu07 (pid 42)", or "ranks 0-7,12 (9 workers)".
std::string who(const ActivityGroup& group);

/// Lines for people, none of them indented; a heading first. Empty where there are no groups. Whoever is outside of all
/// operations while others are inside one is said to be missing from that.
std::vector<std::string> lines_of(const std::vector<ActivityGroup>& groups);

}  // namespace muster
