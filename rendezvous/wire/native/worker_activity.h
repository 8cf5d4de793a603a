// What workers were doing when their round ended. Agents report idle workers, so that every node's report names the
// missing rank, its activity, and the operation that the other ranks wait in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

/// One worker, as its own agent saw it.
struct WorkerActivity {
    std::int32_t rank = 0;
    std::int32_t pid = 0;
    std::uint32_t idle_ms = 0;  ///< Time without activity. 0: it was busy, or it is lost and `state` has more.
    std::string state{};        ///< "asleep in futex_wait_queue"
    bool inside = false;        ///< True while `operation` runs. False: it was the last one.
    std::string operation{};    ///< "all_reduce 41 of world". Empty: no flight record.
    std::string place{};        ///< "step (train.py:31)". Empty: unknown.

    friend bool operator==(const WorkerActivity&, const WorkerActivity&) = default;
};

/// Workers of one round that stood in the same place: the same operation, inside or after it, and the same line.
struct ActivityGroup {
    std::string host;         ///< Host of `first`.
    WorkerActivity first;     ///< The worker with the lowest rank.
    std::string ranks;        ///< "0-7,12"
    std::uint32_t count = 0;  ///< Number of workers.

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
