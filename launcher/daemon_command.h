// A command given to a job's daemon from anywhere, with the job's secret.
#pragma once

#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::launcher {

/// Connects, proves to know the secret, checks that the daemon does, says the command and waits for the answer, all
/// within `limit`. The error is a sentence for the person: no answer, another secret, none at the daemon.
Result<native::CommandAnswer> command_daemon(const Endpoint& endpoint, const std::string& job,
                                             const native::Command& command, const native::KeyedHash& secret,
                                             Duration limit);

}  // namespace muster::launcher
