// The last words of a node whose agent died: the guardian sends them to the daemon, so that the others learn of the
// loss at once instead of after a lease.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::launcher {

struct TestamentPlan {
    std::vector<Endpoint> daemons;  ///< numeric, best first; of several one leads
    native::Hello hello;            ///< of the agent
    std::string why;                ///< "its agent died (killed, or out of memory)"
};

/// The bytes for PosixProcessHost::set_testament: where to go, and the frames Hello and AgentDied.
std::string write_testament(const TestamentPlan& plan);

/// For the guardian, whose other threads do not exist: connects to each daemon in turn and sends the frames, until one
/// takes them, within `limit` in all. As long as one stands by (NotLeader), the next leader is waited for. Whatever
/// fails, the lease is the fallback; so nothing is reported. With a secret the daemon asks for a proof between the two
/// frames.
void deliver_testament(std::string_view testament, Duration limit, const native::KeyedHash& secret = {});

}  // namespace muster::launcher
