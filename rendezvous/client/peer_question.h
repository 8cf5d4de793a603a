// One short connection to another agent: "have you lost the daemon too?"
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "rendezvous/client/core/client_core.h"
#include "rendezvous/connect/resolver.h"

namespace muster::rendezvous {

/// Asks, and calls `handler` exactly once from the io_context: with the answer, or with nothing when the peer could not
/// be reached or was silent until `ask.timeout` from now. `io` and `resolver` outlive the question.
void ask_peer(boost::asio::io_context& io, Resolver& resolver, const AskPeer& ask,
              std::function<void(std::optional<native::PeerAnswer>)> handler);

}  // namespace muster::rendezvous
