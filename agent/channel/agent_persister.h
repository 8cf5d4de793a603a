// Runs muster-persist (worker_runtime/checkpoint) when the newest step is only in the memory of this node: between two
// rounds in the background, and at the job's end, which waits for it.
//
// One process for each checkpoint directory, in its own process group: a terminal's Ctrl-C does not reach it, and it
// continues if this agent has to end first. `limit` bounds it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/channel/agent_channel.h"
#include "agent/process/side_process.h"
#include "rendezvous/base/closing_ptr.h"
#include "rendezvous/base/ids.h"
#include "rendezvous/base/time.h"
#include "rendezvous/events/event.h"

namespace muster::agent {

class AgentPersister : public std::enable_shared_from_this<AgentPersister> {
  public:
    /// `limit`, in whole seconds, is how long one may take; zero: none is started but after success, where it finds out
    /// whether the disk has the newest step already. `loop` outlives it.
    static ClosingPtr<AgentPersister> make(boost::asio::io_context& loop, Duration limit) {
        return closing(std::shared_ptr<AgentPersister>(new AgentPersister(loop, limit)));
    }
    /// Waits for nothing: what runs ends by itself.
    void close() { closed_ = true; }

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

    /// Called with checkpoint_persisted.
    std::function<void(const Event&)> on_event;

  private:
    struct Run {
        Run(boost::asio::io_context& loop, SideProcess started)
            : pid(started.pid), ended(loop, started.ended.release()), output(std::move(started.output)), late(loop) {}
        pid_t pid;
        boost::asio::posix::stream_descriptor ended;
        FileDescriptor output;
        boost::asio::steady_timer late;
        std::string directory, copies;
        std::int64_t step = -1;  // the newest of the copies
        When when = When::between_rounds;
        bool replaced = false;  // by another one, and killed: its end says nothing
        /// Goes with it: of two handlers that are ready at once the second one finds out.
        std::shared_ptr<bool> alive = std::make_shared<bool>(true);
    };
    using Place = std::list<Run>::iterator;

    AgentPersister(boost::asio::io_context& loop, Duration limit) : loop_(loop), limit_(limit) {}
    void start(const std::string& directory, const std::vector<const MemoryHandover*>& copies, Round round, When when);
    void settle() {
        if (runs_.empty()) end();
    }
    void end();
    bool makes_way(const std::string& directory, const std::string& copies, When when);
    void watch(Place run);
    void watch_end(Place run);
    void over(Place run);
    void tell(const Run& run, int status);
    void unsaved(const std::string& what);
    void fail(When when, std::int64_t step, const std::string& why);
    /// Between rounds and at the end it may be the same.
    bool is_news(const std::string& line) { return std::exchange(told_, line) != line; }

    boost::asio::io_context& loop_;
    const Duration limit_;
    bool closed_ = false;
    std::function<void(std::string)> done_;
    std::list<Run> runs_;
    std::string told_;
    std::string unsaved_;  // of those at the end
};

}  // namespace muster::agent
