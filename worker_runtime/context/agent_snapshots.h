// The SnapshotLink to this worker's agent.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "worker_runtime/checkpoint/snapshot_link.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/context/agent_link.h"

namespace muster::runtime {

class AgentSnapshots final : public SnapshotLink {
  public:
    /// `expected`: the number of offers that the agent has announced.
    /// `give_time_max`: the threads that save and copy wait so long for an agent that has no CPU for a moment, or a
    /// job's last snapshot would be lost to it, and ranks would have no step in common. All ranks leave out further
    /// snapshots meanwhile.
    AgentSnapshots(std::size_t expected, std::shared_ptr<const RoundGroups> groups, Duration give_time_max = 2s)
        : groups_(std::move(groups)), give_time_max_(give_time_max), expected_(expected) {}

    /// Destroy the link before its owner. Before connect(), nothing is given.
    void connect(AgentLink& agent);
    void disconnect();
    /// Called in the thread that receives the agent's messages.
    void add_offer(const local::Offer& offer, FileDescriptor memory);

    bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step,
              const std::string& directory) override;
    bool give_copy(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, int rank) override;
    std::vector<OfferedSnapshot> take_offers(Duration limit) override;
    [[nodiscard]] bool has_failed() const override { return groups_->has_failed(); }

  private:
    /// Waits for an agent that took the last one.
    bool send(const local::Give& give, const FileDescriptor& memory, bool& was_taken);

    std::shared_ptr<const RoundGroups> groups_;
    const Duration give_time_max_;
    std::mutex mutex_;
    std::condition_variable heard_;
    std::size_t expected_;
    std::vector<OfferedSnapshot> offers_;
    AgentLink* agent_ = nullptr;
    /// The agent has taken the last snapshot, or copy: one that does not is waited for once.
    bool was_taken_ = true, copy_was_taken_ = true;
};

}  // namespace muster::runtime
