// The workers' store of one round: a fresh, empty TCPStore on a port of its own. Opened by every agent before it joins,
// used on the node of group rank 0, closed with all its connections when the round is over, so that a key of round k
// can never be read in round k+1.
//
// The same port answers the other agents' question "have you lost the daemon too?" (PeerAsk), in the native dialect.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "rendezvous/base/error.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// Hands work to the owner's own thread, e.g. [&io](auto work) { boost::asio::post(io, std::move(work)); }.
using PostToOwner = std::function<void(std::function<void()>)>;

struct RoundStoreConfig {
    ListenConfig listen;  ///< all addresses and an ephemeral port by default; --store-port gives a range
    NetLimits limits;
    /// Called on the owner's thread through `post`, and never after the RoundStore is gone. Empty: peers get no answer.
    std::function<native::PeerAnswer(const native::PeerAsk&)> answer;
    PostToOwner post;
};

class RoundStore {
  public:
    /// Binds at once, serves as soon as `loop` runs. `loop` outlives it. Errors are Listener::open's
    /// and EventLoop::add's.
    static Result<std::unique_ptr<RoundStore>> open(EventLoop& loop, RoundStoreConfig config);
    /// Closes the port and every connection before it returns: a client sees the end of the stream at once.
    ~RoundStore();

    [[nodiscard]] std::uint16_t port() const;

  private:
    class Implementation;
    explicit RoundStore(EventLoop& loop);
    EventLoop& loop_;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
