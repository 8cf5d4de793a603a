// Resolves names with a deadline. DNS never delays the end of the process.
//
// getaddrinfo may block for 30 s and more when a server is dead. So it runs on detached threads that only own the state
// shared with the caller; a late answer is dropped.
#pragma once

#include <functional>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"

namespace muster {

using LookUpAnswer = Result<std::vector<SocketAddress>>;

/// The addresses of an endpoint that needs no look-up: of one or several numeric addresses. Empty where any part is a
/// name.
std::vector<SocketAddress> numeric_addresses(const Endpoint& endpoint);

/// Every address of the endpoint's host, with its port: the family that the system prefers first (RFC 6724), then both
/// in turn. At once and without a thread for a numeric address. unreachable with the resolver's words; timed_out at the
/// deadline. Blocks the caller; a loop uses connect/resolver.h.
LookUpAnswer look_up(const Endpoint& endpoint, Instant deadline);

/// The same without waiting: `done` is called once, on a thread of its own that has every signal blocked, whenever the
/// resolver is through. It must own all that it touches. io when the system has no thread to give; then it is not
/// called.
Result<void> look_up_detached(const Endpoint& endpoint, std::function<void(LookUpAnswer)> done);

}  // namespace muster
