// A command given to a job's daemon from anywhere, with the job's secret.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::launcher {

/// Connects, proves to know the secret, checks that the daemon does, says the command and waits for the answer, all
/// within `limit`. Of several daemons the one that leads is found: they are tried in turn, and where one says who
/// leads, that one is next; again and again, because the next leader may only be on its way. Once the command has been
/// said it is said to nobody else. The error is a sentence for the person: no answer, another secret, none at the
/// daemon; of several daemons, what each of them said last.
Result<native::CommandAnswer> command_daemon(const std::vector<Endpoint>& daemons, const std::string& job,
                                             const native::Command& command, const native::KeyedHash& secret,
                                             Duration limit);

}  // namespace muster::launcher
