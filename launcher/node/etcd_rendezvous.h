// --rdzv-backend etcd: this node's part in a rendezvous that survives the loss of any host. Each node that may host
// runs a daemon with its state in etcd. One of them is the leader; etcd has the leader's endpoint
// (rendezvous/state/ETCD.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/config/launch_config.h"
#include "rendezvous/servers/daemon.h"

namespace muster::launcher {

/// Called on the loop's thread.
struct EtcdCallbacks {
    /// The leader's endpoint. Empty: no leader is known, and `why` has the reason.
    std::function<void(std::optional<Endpoint> leader, std::string why)> leader;
    std::function<void(const std::string& job)> job_forgotten;
    rendezvous::EventSink on_event;
};

class EtcdRendezvous {
  public:
    /// `host` is the name or address that other nodes use for this one. Fails for wrong TLS files or an unavailable
    /// port.
    static Result<std::unique_ptr<EtcdRendezvous>> open(const LaunchConfig& config, const std::string& host,
                                                        rendezvous::EventLoop& loop, EtcdCallbacks callbacks);
    ~EtcdRendezvous();

    /// This node's daemon, leader or standby. Null with is_host=0.
    [[nodiscard]] rendezvous::Daemon* daemon() const;

    /// Call it when all agents know that the job is over: the last leader then deletes the job's state from etcd.
    void job_is_over();

  private:
    class Body;
    explicit EtcdRendezvous(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster::launcher
