// The rendezvous daemon inside this launcher, where this node is the endpoint's host.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/launch_config.h"
#include "rendezvous/net/daemon.h"

namespace muster::launcher {

/// Whether this node is to host the rendezvous, and how sure that is.
enum class Hosting {
    no,        ///< another node's or a musterd's
    inferred,  ///< the endpoint's host is this one, but its port may be another muster's of this host
    told,      ///< is_host=1, standalone, or static's node rank 0
};

/// `own_host`: the endpoint's host is this one (environment_probe.h); asked only where the options leave it open.
Hosting hosting(const LaunchConfig& config, const std::function<bool()>& own_host);

/// Binds the endpoint's port on all addresses (standalone: on loopback alone). Empty without an error: the port belongs
/// to another muster or musterd of this host, which answers; then this node is a client. The error names the port's
/// holder where that can be known. `config.endpoint.port` 0 is replaced by the port that was bound.
Result<std::unique_ptr<rendezvous::Daemon>> open_daemon(LaunchConfig& config, Hosting hosting,
                                                        rendezvous::EventLoop& loop,
                                                        std::function<void(const std::string& job)> on_job_forgotten);

/// Whose the port is that could not be bound.
enum class PortOwner {
    this_job,   ///< a muster that hosts this job, or a musterd
    other_job,  ///< a muster that hosts other jobs and ends with them
    stranger,   ///< no muster, or one that does not answer
};

/// Asks GET /status of 127.0.0.1 and ::1 at `port` until the job is known there, for `limit` at most.
PortOwner port_owner(std::uint16_t port, const std::string& job, Duration limit);

}  // namespace muster::launcher
