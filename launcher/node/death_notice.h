// The message that the guardian sends to the daemon when the agent died, so that the loss is known at once instead of
// after a lease.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::launcher {

struct DeathNoticePlan {
    std::vector<Endpoint> daemons;  ///< Numeric, best first. One of several is the leader.
    native::Hello hello;            ///< The agent's Hello.
    std::string why;                ///< "its agent died (killed, or out of memory)".
    /// Those that the daemon may have. Here, because the guardian is forked before the key of a launch is known.
    std::vector<rendezvous::JobKey> keys{};
};

/// The bytes for PosixProcessHost::set_death_notice: the daemons' endpoints, the keys, and the frames Hello and
/// AgentDied. They stay between this process and its guardian.
std::string write_death_notice(const DeathNoticePlan& plan);

/// Runs in the guardian, which has one thread. Connects to each daemon in turn and sends the frames until one accepts
/// them, within `limit` in all. While a daemon answers NotLeader, it retries until a leader is elected. Errors are not
/// reported, because the lease is the fallback. With keys both sides prove one, or speak TLS.
void deliver_death_notice(std::string_view notice, Duration limit);

}  // namespace muster::launcher
