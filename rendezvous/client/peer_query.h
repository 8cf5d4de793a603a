// Asks another agent over a short connection whether it has lost the daemon too.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "rendezvous/client/core/client_core.h"
#include "rendezvous/connect/resolver.h"

namespace muster::rendezvous {

/// Of each peer, by QueryPeer::peer.address, the address that answered last.
using AnsweringAddresses = std::map<std::string, boost::asio::ip::address>;

/// A peer's addresses are tried a quarter of the timeout apart at most, the one in `known` first; `known` is kept up to
/// date.
/// Calls `handler` exactly once from the io_context: with the answer, or with nothing if the peer is unreachable or
/// does not answer within `ask.timeout`. `io`, `resolver` and, until then, `known` must outlive the call.
void query_peer(boost::asio::io_context& io, Resolver& resolver, AnsweringAddresses& known, const QueryPeer& ask,
                std::function<void(std::optional<native::PeerAnswer>)> handler);

}  // namespace muster::rendezvous
