// The implementation of Context: what one process has of one round.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "muster/context.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/context/agent_link.h"
#include "worker_runtime/context/agent_snapshots.h"
#include "worker_runtime/context/make_transport.h"
#include "worker_runtime/context/notices.h"
#include "worker_runtime/context/own_store.h"
#include "worker_runtime/context/progress_reporter.h"
#include "worker_runtime/context/rank_claim.h"
#include "worker_runtime/context/round_store.h"
#include "worker_runtime/context/round_word.h"
#include "worker_runtime/core/environment.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/wait_board.h"

namespace muster::runtime {

/// The connections of this process to the store of one round, so that no wait there outlasts the round.
class StoreConnections {
  public:
    void add(const RoundStore& store) {
        const std::lock_guard lock(mutex_);
        interrupters_.push_back(store.interrupter());
        if (ended_) interrupters_.back()();
    }
    void interrupt() {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        for (const auto& interrupt : interrupters_) interrupt();
    }

  private:
    std::mutex mutex_;
    std::vector<std::function<void()>> interrupters_;
    bool ended_ = false;
};

class ContextBody {
  public:
    Environment environment;
    std::shared_ptr<RoundStore> store;  // null in a world of one, which has its own
    OwnStore own_store;
    std::unique_ptr<RoundStore> claims;  // null without a store
    RankClaim told;
    HeldRank held;
    pid_t holder = 0;  // a forked child may destroy this too, and holds nothing
    std::shared_ptr<RoundGroups> groups = std::make_shared<RoundGroups>();
    std::shared_ptr<Notices> notices = std::make_shared<Notices>();
    std::shared_ptr<WaitBoard> waits = std::make_shared<WaitBoard>();
    std::shared_ptr<AgentSnapshots> snapshots;  // null without an agent
    std::unique_ptr<Communicator> world;
    /// What the agent says about the round's end.
    RoundWord word;
    /// Before open(): whether the program can rejoin (Context::can_rejoin).
    bool can_rejoin = false;
    StoreConnections connections;
    ContextOptions options;
    std::unique_ptr<AgentLink> agent;  // its thread uses what stands above

    ~ContextBody() {
        if (claims && ::getpid() == holder) claims->post_value(held.key, claim_is_over);
        if (snapshots) snapshots->disconnect();  // a checkpointer may still have it
        if (agent) ProgressReporter::of_process().drop_channel(*agent);
    }

    std::shared_ptr<FlightRecorder> flight;
    Duration meeting_timeout{};
    WireSecurity security;
    std::vector<std::string> addresses;  // of this host, for other ranks; none without a store
    std::uint64_t host_groups = 0;

    /// Reads the variables, reaches the store and the agent, and meets the other ranks. After an error the agent may
    /// still be reached, and have said why.
    Result<void> open();
    /// Drops everything of the round but the channel to the agent.
    void leave_round();
    /// True if the program still has a communicator or a checkpointer of the round, whose threads and connections would
    /// stay.
    [[nodiscard]] bool is_in_use() const;
    Result<void> reach_store();
    Result<void> claim();
    [[nodiscard]] Error explained(Error error) const;
    /// All keys of the round.
    [[nodiscard]] Result<std::unique_ptr<RoundStore>> connect_store(Duration timeout);
    [[nodiscard]] std::string opening_prefix() const;
    Result<void> receive_key();
    /// What they carry is the whole model, and is sent beside training: encrypted wherever there is a key.
    [[nodiscard]] WireSecurity of_host_groups() const { return {.key = security.key, .encrypts = true}; }
    Result<void> open_flight_record();
    Result<void> meet();
    Result<std::unique_ptr<Communicator>> host_group(const std::vector<int>& members);

  private:
    /// Fails once the agent asks this process to leave the round (Hold). Null for a new process, which it never asks
    /// before the world is there.
    [[nodiscard]] std::shared_ptr<ParentGroup> until_hold();
    void reach_agent(std::shared_ptr<FdWatch> watch);
    void heard(const local::Message& message, FileDescriptor beside);
};

}  // namespace muster::runtime
