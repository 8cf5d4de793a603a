// Sends a command to a job's daemon from any host, with the job's secret.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::launcher {

/// Connects, authenticates in both directions with one of `keys`, sends the command and waits for the answer, all
/// within `limit`. Of several daemons it finds the leader: it tries them in turn, follows a hint about the leader at
/// once, and retries until the deadline, because an election may be running. It never sends the command to a second
/// daemon. The error is a sentence for the user: no answer, a different secret, or no secret at the daemon; of several
/// daemons, the last error of each.
Result<native::CommandAnswer> command_daemon(const std::vector<Endpoint>& daemons, const std::string& job,
                                             const native::Command& command,
                                             const std::vector<rendezvous::JobKey>& keys, Duration limit);

}  // namespace muster::launcher
