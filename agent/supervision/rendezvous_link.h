// The agent's interface to the rendezvous: the calls of its supervisor, and the callbacks. The real implementation is
// ClientLink (client_link.h) over rendezvous/client; tests have their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

class RendezvousLink {
  public:
    virtual ~RendezvousLink() = default;

    // None of these fails: what still matters is sent after a reconnect, and a rendezvous that is gone for good is told
    // by on_lost.
    virtual void join(native::Join join) = 0;
    virtual void workers_failed(std::vector<Failure> failures) = 0;
    virtual void workers_succeeded() = 0;
    virtual void round_report(native::RoundReport report) = 0;
    virtual void leave(std::string why) = 0;
    virtual void end_acknowledged() = 0;
    virtual void command(native::Command command) = 0;
    virtual void fault_answer(native::FaultAnswer answer) = 0;
    virtual void workers_seen(native::WorkersSeen seen) = 0;
    /// Says and hears nothing for so long: a partition that is rehearsed.
    virtual void cut_off(Duration length) = 0;
    /// Sends what is queued, then closes; `closed` is called once, at the latest after one second; inside
    /// this call if there is nothing to wait for.
    virtual void close(std::function<void()> closed) = 0;
    /// Whether the guardian may be fed at this moment; asked each lease/10. False while this node is cut off: should
    /// the agent then be stopped, it is the guardian that has to kill the workers in time.
    [[nodiscard]] virtual bool may_feed() const { return true; }

    /// When the last message was sent that the daemon is known to have received.
    [[nodiscard]] virtual Instant heard_until() const { return Instant::max(); }

    // Called from the loop, never from inside the calls above. All must be set before the first join.
    std::function<void(native::Message)> on_message;    ///< rendezvous::Deliver lists the messages.
    std::function<void(std::string why)> on_fenced;     ///< Kill the workers with SIGKILL now.
    std::function<void(std::string why)> on_lost;       ///< The rendezvous is lost for good.
    std::function<void(std::string line)> on_progress;  ///< A line for a user who waits.
};

}  // namespace muster::agent
