// Limits for connecting to a host with several addresses: connect_race.h on a loop, reachable.h without one.
#pragma once

#include "rendezvous/base/time.h"

namespace muster::rendezvous {

/// The next address is tried when this one has not answered for so long, or has failed (RFC 8305, "happy eyeballs").
inline constexpr Duration connect_stagger = 250ms;

}  // namespace muster::rendezvous
