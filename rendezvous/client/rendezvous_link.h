// The agent's interface to the rendezvous: what it submits, and the callbacks. The real implementation is Client
// (client.h); tests have their own.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

class RendezvousLink {
  public:
    virtual ~RendezvousLink() = default;

    /// A message of an agent; nothing is sent before the first Join. It never fails: what still matters is sent after a
    /// reconnect, and on_lost reports a rendezvous that is lost for good.
    virtual void submit(native::Message message) = 0;
    /// Fault injection: for `length`, behaves as behind a network that drops all packets to the daemon and to peers.
    /// Messages of that time are delivered afterwards.
    virtual void cut_off(Duration length) = 0;
    /// Must be the last call: closes the connection in order. `closed` is called when the daemon has read everything
    /// (it then closes its side), at once without a connection, or after `limit`.
    virtual void close(Duration limit, std::function<void()> closed) = 0;
    /// Whether the guardian may be fed at this moment; asked each lease/10. False while this node is cut off: should
    /// the agent then be stopped, it is the guardian that has to kill the workers in time.
    [[nodiscard]] virtual bool may_feed() const { return true; }

    /// When the last message was sent that the daemon is known to have received.
    [[nodiscard]] virtual Instant heard_until() const { return Instant::max(); }

    // Called from the loop, never from inside the calls above. They must be set before the first Join.
    std::function<void(native::Message)> on_message;    ///< Deliver lists the messages.
    std::function<void(std::string why)> on_fenced;     ///< Kill the workers with SIGKILL now.
    std::function<void(std::string why)> on_lost;       ///< The rendezvous is lost for good: exit code 75.
    std::function<void(std::string line)> on_progress;  ///< A line for a user who waits.
    /// A connection to this numeric address is open; the peer's identity is not known yet.
    std::function<void(Endpoint daemon)> on_connected;
};

}  // namespace muster::rendezvous
