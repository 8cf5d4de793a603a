// What the environment variables choose for a communicator: the world of a Context, and groups that meet by themselves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "muster/context.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/core/environment.h"
#include "worker_runtime/tcp/tcp_transport.h"
#include "worker_runtime/transport/variable.h"
#include "worker_runtime/transport/wire_security.h"

namespace muster::runtime {

/// How much the runtime says in this process: as the launcher, which takes the same variables, so that both can be told
/// at once. Without them only warnings and errors.
Result<void> set_log_level_by_environment();

/// The name, as MUSTER_TRANSPORT has it.
std::string_view name_of(TransportChoice choice);

/// MUSTER_TRANSPORT, or `otherwise` if it is not set.
Result<TransportChoice> chosen_transport(TransportChoice otherwise);

/// MUSTER_TCP_ALGORITHM.
Result<TcpAlgorithm> chosen_algorithm();

/// Where other ranks may reach this one, best first, by the user's choice of interfaces. A job of one node needs one
/// address; of several, one may be on a network that not all of them share.
Result<std::vector<std::string>> own_addresses_towards(const std::string& store_address);

/// The key of this round's ranks, from the agent; no key in a job without one. A job that has a key has one on all
/// nodes, so a worker that cannot get it is refused here: the others would refuse it only later.
Result<WireSecurity> receive_security(const Environment& environment, Instant deadline);

}  // namespace muster::runtime
