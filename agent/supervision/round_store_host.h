// The agent's interface to the workers' store of one round: opened before a join, closed after the round.
#pragma once

#include <optional>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"

namespace muster::agent {

/// Implemented by the launcher's wiring over rendezvous/net, which the agent does not know. Three kinds:
///   own       a fresh RoundStore in every round; both ports are its port
///   probed    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: a port that was found free, for worker rank 0 to bind
///   endpoint  the static back end: the store is the daemon's, so store is 0
class RoundStoreHost {
  public:
    virtual ~RoundStoreHost() = default;

    /// Binds now, with an empty store. Called only while none is open. An error says what was tried, e.g.
    /// "bind store port 29500: Address already in use".
    virtual Result<RoundPorts> open() = 0;
    /// The round is sealed, and `assigned` is this node's part: its store begins to serve the round's nodes, if it is
    /// the round's. Nothing happens if none is open.
    virtual void serve(const native::Assigned& assigned) = 0;
    /// The round's store is at `store`, on another node. Where this node's workers shall connect instead: a relay of
    /// this node (--store-relay), until close(). Empty: to the store itself. An error: they cannot reach it.
    virtual Result<std::optional<Endpoint>> relay(const Endpoint& store) = 0;
    /// Closes the listener and every connection to it, and forgets all keys. Viewers of log files may read to the end
    /// of the round's lines. Nothing happens if none is open.
    virtual void close() = 0;
};

}  // namespace muster::agent
