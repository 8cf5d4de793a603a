// Communicators of ranks that meet by a store of the caller's, without a Context: a framework's process groups, which
// only their members make.
//
// All of a process share what exists once: the thread that watches peers, the flight record, and the channel to the
// agent, whose end of the round ends every group.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "muster/communicator.h"
#include "muster/context.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/context/agent_link.h"
#include "worker_runtime/core/environment.h"
#include "worker_runtime/flight/flight_recorder.h"
#include "worker_runtime/transport/fd_watch.h"
#include "worker_runtime/transport/meeting_place.h"
#include "worker_runtime/transport/wait_board.h"

namespace muster::runtime {

struct MetGroupTerms {
    std::string name;  ///< for messages and the flight record, such as "torch/0"; equal on all members
    int rank = 0;
    int size = 1;
    /// By rank here: its rank in the world, for messages. Empty: this group is a world.
    std::vector<int> world_ranks{};
    std::shared_ptr<MeetingPlace> place;  ///< keys of this group alone
    std::string address{};                ///< the only one of this host that the others are told; empty: all
    Duration meeting_timeout{};
    Duration operation_timeout{};
    TransportChoice transport = TransportChoice::automatic;  ///< the variable MUSTER_TRANSPORT overrides it
};

class MetGroups {
  public:
    /// Never destroyed: threads of the caller may still be in a call while the process ends.
    static MetGroups& of_process();

    /// A collective of the members: meets them at the place and connects to them. An error names the ranks that did
    /// not join, or the variable that is wrong.
    Result<std::unique_ptr<Communicator>> open(MetGroupTerms terms);

    /// Ends all groups: the round has ended.
    void end(std::string_view why, Errc code = Errc::cancelled) { groups_->end(why, code); }
    /// Another round has begun for this process, which has kept nothing of the one before.
    void begin_again() { groups_->begin_again(); }
    [[nodiscard]] const RoundGroups& groups() const { return *groups_; }

    /// A Context has its own channel, and the agent accepts one per worker. It calls end() from then on.
    void leave_agent_to_context();
    /// The agent keeps one flight record of a worker. From now on new groups write to that of the Context.
    void write_to(std::shared_ptr<FlightRecorder> flight);
    /// Where the groups that are there write to, so that a new Context writes there too. Null: there are none.
    [[nodiscard]] std::shared_ptr<FlightRecorder> flight_of_groups();

  private:
    MetGroups() = default;
    Result<void> prepare(const MetGroupTerms& terms, const Environment& environment);
    void reach_agent(const Environment& environment);

    const std::shared_ptr<RoundGroups> groups_ = std::make_shared<RoundGroups>();
    std::mutex mutex_;  ///< held while one of the members below is made or dropped
    std::shared_ptr<FdWatch> watch_;
    std::shared_ptr<FlightRecorder> flight_;  ///< Of the newest Context, if there was one.
    std::unique_ptr<AgentLink> agent_;
    bool agent_is_contexts_ = false;
    std::weak_ptr<WaitBoard> world_waits_;  ///< of the last world: groups of some of its ranks enter what they wait for
};

}  // namespace muster::runtime
