// Which of the hosts that a scheduler gave to a job have not joined. Pure.
#pragma once

#include <map>
#include <string>

#include "rendezvous/rounds/member.h"

namespace muster::rendezvous {

/// "gpu02, gpu05 and 12 more": the hosts of the members' `expected_hosts` from which no member has come. Empty: no
/// scheduler told them, none is missing, or the scheduler has other names for its hosts than they have themselves.
std::string missing_hosts(const std::map<Incarnation, Member>& members);

}  // namespace muster::rendezvous
