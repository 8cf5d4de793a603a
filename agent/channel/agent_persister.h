// Runs muster-persist (worker_runtime/checkpoint) when the newest step is only in the memory of this node: between two
// rounds in the background, and at the job's end, which waits for it.
//
// One process for each checkpoint directory, in its own session: a terminal's Ctrl-C does not reach it, and it
// continues if this agent has to end first. `limit` bounds it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/channel/agent_channel.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

class AgentPersister {
  public:
    /// `limit`, in whole seconds, is how long one may take; zero: none is started but after success, where it finds out
    /// whether the disk has the newest step already. `loop` outlives it.
    AgentPersister(boost::asio::io_context& loop, Duration limit);
    /// Waits for nothing: what runs ends by itself.
    ~AgentPersister();
    AgentPersister(const AgentPersister&) = delete;
    AgentPersister& operator=(const AgentPersister&) = delete;

    enum class When {
        between_rounds,  ///< The step also exists elsewhere. A late result is not reported; a failure is a warning.
        at_the_end,      ///< Every result is reported to the user.
        after_success,   ///< The same. All nodes write their parts, and each waits for those of the others.
    };
    /// Brings these snapshots to the disk; `round` is the last one whose workers have ended. Returns at once. Where one
    /// runs that was started for the same snapshots, it goes on.
    void start(const std::map<std::uint32_t, std::vector<MemoryHandover>>& snapshots, Round round, When when);

    /// Calls `done` from the loop once nothing runs any more: in `limit` and a few seconds at most, or at hurry(). It
    /// is told which step that was in memory at the end is not on the disk, why, and what is safe; empty: all of them
    /// are.
    void when_done(std::function<void(std::string unsaved)> done);
    /// Waits no longer.
    void hurry();

    /// For lines to the person at the launcher.
    std::function<void(std::string)> on_line;

  private:
    class Body;
    std::shared_ptr<Body> body_;  // shared with the handlers under way
};

}  // namespace muster::agent
