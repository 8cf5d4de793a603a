// The rendezvous daemon inside this launcher, where this node is the endpoint's host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/servers/daemon.h"

namespace muster::launcher {

/// Whether this node is to host the rendezvous, and how sure that is.
enum class Hosting {
    no,        ///< another node's or a musterd's
    inferred,  ///< the endpoint's host is this one, or static's node rank 0; but the port may be another muster's
    told,      ///< is_host=1, or standalone
};

/// `own_host`: the endpoint's host is this one (environment_probe.h); asked only where the options leave it open.
Hosting hosting(const LaunchConfig& config, const std::function<bool()>& own_host);

/// Does a signal wait that ends the job? Then whoever waits for others goes on with what it has. Asked every 20 ms.
using InHaste = std::function<bool()>;

/// Binds the endpoint's port on all addresses, or on loopback alone (standalone, and an endpoint on loopback). Empty
/// without an error: the port belongs to another muster or musterd of this host, which answers, or whose it is was not
/// waited for in haste; then this node is a client. The error names the port's holder where that can be known.
/// `config.endpoint.port` 0 is replaced by the port that was bound. `endpoint_addresses`: the endpoint's host,
/// resolved, for asking the holder of a port; may be empty.
Result<std::unique_ptr<rendezvous::Daemon>> open_daemon(LaunchConfig& config, Hosting hosting,
                                                        const std::vector<std::string>& endpoint_addresses,
                                                        rendezvous::EventLoop& loop, const InHaste& in_haste,
                                                        std::function<void(const std::string& job)> on_job_forgotten);

/// What whoever is told to be the host, by is_host=1 or by a scheduler, can do where another one has the port; behind
/// the error of open_daemon.
std::string advice_to_told_host(const Environment& environment, std::uint16_t port);

/// Whose the port is that could not be bound.
enum class PortOwner {
    this_job,   ///< a muster that hosts this job, or a musterd
    other_job,  ///< a muster that hosts other jobs and ends with them
    stranger,   ///< somebody who answers, or at least accepts, and is no muster
    unknown,    ///< the question was broken off in haste
    nobody,     ///< nobody listens at these addresses: whoever had the port has just left, or listens elsewhere
};

struct PortQuestion {
    std::vector<std::string> addresses;  ///< numeric, of this host; 127.0.0.1 and ::1 are asked first in any case
    std::uint16_t port = 0;
    std::string job;
    InHaste in_haste;
};

/// Asks GET /status at each address until the job is known there or nobody is, at most until `deadline`; for a second
/// where somebody answers who is no muster.
PortOwner port_owner(const PortQuestion& question, Instant deadline);

}  // namespace muster::launcher
