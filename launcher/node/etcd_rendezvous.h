// --rdzv-backend etcd: this node's part in a rendezvous that survives the loss of any host. Each node that may host
// runs a daemon with its state in etcd. One of them is the leader; etcd has the leader's endpoint
// (rendezvous/state/ETCD.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launcher/config/launch_config.h"
#include "rendezvous/servers/daemon.h"
#include "rendezvous/state/etcd/etcd_state.h"

namespace muster::launcher {

/// Called on the loop's thread.
struct EtcdCallbacks {
    /// The leader's endpoint. Empty: no leader is known, and `why` has the reason.
    std::function<void(std::optional<Endpoint> leader, std::string why)> leader;
    std::function<void(const std::string& job)> job_forgotten;
    rendezvous::EventSink on_event;
    std::shared_ptr<MemoryBudget> memory;  ///< Of all ports of this launcher.
};

class EtcdRendezvous {
  public:
    /// `host` is the name or address that other nodes use for this one. Fails for wrong TLS files or an unavailable
    /// port.
    static Result<std::unique_ptr<EtcdRendezvous>> open(const LaunchConfig& config, const std::string& host,
                                                        rendezvous::EventLoop& loop, EtcdCallbacks callbacks);
    ~EtcdRendezvous();

    /// This node's daemon, leader or standby. Null with is_host=0.
    [[nodiscard]] rendezvous::Daemon* daemon() const { return daemon_.get(); }

    /// Call it when all agents know that the job is over: the last leader then deletes the job's state from etcd.
    void job_is_over();

  private:
    EtcdRendezvous(rendezvous::EventLoop& loop, EtcdCallbacks callbacks)
        : loop_(loop), callbacks_(std::move(callbacks)) {}
    Result<void> serve(const LaunchConfig& config, const std::string& host);
    Result<void> watch(const LaunchConfig& config);
    Result<std::unique_ptr<rendezvous::EtcdState>> open_state(const LaunchConfig& config, std::string self);
    void tell(const std::string& leader) const;

    rendezvous::EventLoop& loop_;
    const EtcdCallbacks callbacks_;
    std::unique_ptr<rendezvous::Daemon> daemon_;
    rendezvous::EtcdState* state_ = nullptr;  // owned by daemon_
    std::unique_ptr<rendezvous::EtcdState> watched_;
};

}  // namespace muster::launcher
