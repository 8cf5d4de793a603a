// Asks another agent over a short connection whether it has lost the daemon too.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "rendezvous/client/core/client_core.h"
#include "rendezvous/connect/resolver.h"

namespace muster::rendezvous {

/// Calls `handler` exactly once from the io_context: with the answer, or with nothing if the peer is unreachable or
/// does not answer within `ask.timeout`. `io` and `resolver` must outlive the call.
void query_peer(boost::asio::io_context& io, Resolver& resolver, const QueryPeer& ask,
                std::function<void(std::optional<native::PeerAnswer>)> handler);

}  // namespace muster::rendezvous
