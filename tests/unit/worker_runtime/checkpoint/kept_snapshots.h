// Agents for tests of copies in memory: maps that outlive the rounds of ranks that are threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "tests/unit/worker_runtime/checkpoint/saved_model.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

namespace muster::test {

/// Keeps what the workers of a round gave, by rank, for those of the next.
class Agents {
  public:
    std::shared_ptr<runtime::SnapshotLink> link(int rank);
    /// With the copies of others' that it had.
    void lose(int rank);
    /// The agent of rank `from` is that of rank `to` in the next round.
    void move(int from, int to);
    [[nodiscard]] const runtime::OfferedSnapshot& newest(int rank) { return newest(rank, rank); }
    /// That the agent of `rank` has of rank `of`.
    [[nodiscard]] const runtime::OfferedSnapshot& newest(int rank, int of) { return kept_.at({rank, of}).back(); }
    /// The ranks of which the agent of `rank` has copies, with the step of each: "2@15 2@16".
    [[nodiscard]] std::string copies(int rank) const;

  private:
    class Link;
    mutable std::mutex mutex_;
    std::map<std::pair<int, int>, std::vector<runtime::OfferedSnapshot>> kept_;  ///< by agent's rank and whose it is
    std::map<std::pair<int, int>, std::vector<std::int64_t>> steps_;
};

/// Damages a snapshot; the second time, mends it.
void flip_byte(const runtime::OfferedSnapshot& snapshot, std::int64_t at);

/// A communicator of these ranks over loopback, for the one that is `rank`.
Result<std::unique_ptr<Communicator>> loopback_group(const std::shared_ptr<MeetingInMemory>& place,
                                                     const std::vector<int>& members, int rank);

/// A round in which each rank has its agent. `nodes`: of each rank; copies go to the next one over loopback. Empty: all
/// are on one.
std::string round_with_agents(const std::string& directory, int world, std::int64_t number, Agents& agents,
                              const std::function<std::string(Checkpointer&, SavedModel&)>& body,
                              const std::vector<int>& nodes = {}, CheckpointOptions options = {});

/// Loads into fresh models: "memory 15", "local 15", "disk 10" or "none", when all ranks say so and have the right
/// model; else a complaint.
std::string loaded(const std::string& directory, int world, Agents& agents, bool same_world = true,
                   const CheckpointOptions& options = {});

}  // namespace muster::test
