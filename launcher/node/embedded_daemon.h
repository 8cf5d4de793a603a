// The rendezvous daemon inside this launcher. It runs if this node is the endpoint's host.
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

/// What a daemon of this launcher has in any case, also one with its state in etcd.
rendezvous::DaemonConfig daemon_config(const LaunchConfig& config, rendezvous::StartHold start_hold,
                                       std::shared_ptr<MemoryBudget> memory);

/// Whether this node hosts the rendezvous, and how certain that is.
enum class Hosting {
    no,        ///< Another node or a musterd hosts it.
    inferred,  ///< The endpoint's host is this one, or this is node rank 0 of static. Another muster may own the port.
    told,      ///< Set by is_host=1 or standalone.
};

/// `own_host` returns whether the endpoint's host is this one (environment_probe.h). Called only if the options do not
/// decide.
Hosting hosting(const LaunchConfig& config, const std::function<bool()>& own_host);

/// True if a stop signal is pending: waits then return early. Polled every 20 ms.
using IsStopping = std::function<bool()>;

/// Called on the loop's thread.
struct DaemonCallbacks {
    std::function<void(const std::string& job)> on_job_forgotten;
    rendezvous::KeyQuestion on_key_question;
    rendezvous::EventSink on_event;
    std::shared_ptr<MemoryBudget> memory;  ///< Of all ports of this launcher.
};

/// Binds the endpoint's port on all addresses, or only on loopback (standalone, or an endpoint on loopback). Returns
/// null without an error if another muster or musterd of this host owns the port, or somebody who does not answer
/// within 5 s and is not known to be another program (logged: it may be a daemon that is stopped, for which nodes
/// wait), or if `is_stopping` cut the question short: then this node is a client. The error names the port's owner if
/// it is known. The bound port replaces `config.endpoint.port` 0. `endpoint_addresses` is the endpoint's host,
/// resolved, for asking the port's owner; it may be empty.
Result<std::unique_ptr<rendezvous::Daemon>> open_daemon(LaunchConfig& config, Hosting hosting,
                                                        const std::vector<std::string>& endpoint_addresses,
                                                        rendezvous::EventLoop& loop, const IsStopping& is_stopping,
                                                        const DaemonCallbacks& callbacks);

/// What the user can do if this node must be the host (is_host=1 or a scheduler) but the port is in use. Appended to
/// the error of open_daemon.
std::string advice_for_named_host(const Environment& environment, std::uint16_t port);

/// The owner of a port that could not be bound.
enum class PortOwner {
    this_job,   ///< A muster that hosts this job, or a musterd.
    other_job,  ///< A muster that hosts another job and exits with it.
    stranger,   ///< A server other than muster. It answers.
    silent,     ///< It gave no answer until the deadline: perhaps a muster that is stopped.
    unknown,    ///< `is_stopping` ended the query early.
    nobody,     ///< No process listens at these addresses: the owner has just exited, or listens at another address.
};

struct PortQuestion {
    std::vector<std::string> addresses;  ///< Numeric addresses of this host. 127.0.0.1 and ::1 are always asked first.
    std::uint16_t port = 0;
    std::string job;
    IsStopping is_stopping;
};

/// Sends GET /status to each address until one knows the job or nobody listens, at most until `deadline`, and for at
/// most 1 s after an answer that is not muster's.
PortOwner port_owner(const PortQuestion& question, Instant deadline);

}  // namespace muster::launcher
