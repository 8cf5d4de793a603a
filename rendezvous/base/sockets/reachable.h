// Finds which of a host's addresses answers, without an event loop; the same algorithm as connect_race.h.
#pragma once

#include <vector>

#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

/// The addresses with the one first at which a TCP connection stood first. Blocks for as long as that takes, at most
/// until `deadline`; then, or when all have failed, the order is as it was. One address is not tried at all.
std::vector<SocketAddress> reachable_first(std::vector<SocketAddress> addresses, Instant deadline);

}  // namespace muster::rendezvous
