// --rdzv-backend etcd: this node's part in a rendezvous that outlives any one host. Each node that may host runs a
// daemon whose state is in etcd; one of them leads, and everybody knows from etcd where that is (state/ETCD.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/config/launch_config.h"
#include "rendezvous/servers/daemon.h"

namespace muster::launcher {

/// Called on the loop's thread.
struct EtcdNews {
    /// Where the daemon is that leads; empty: nobody is known to lead, for this reason.
    std::function<void(std::optional<Endpoint> leader, std::string why)> leader;
    std::function<void(const std::string& job)> job_forgotten;
};

class EtcdRendezvous {
  public:
    /// `host`: under which other nodes reach this one. Errors are those of the TLS files and of the port.
    static Result<std::unique_ptr<EtcdRendezvous>> open(const LaunchConfig& config, const std::string& host,
                                                        rendezvous::EventLoop& loop, EtcdNews news);
    ~EtcdRendezvous();

    /// This node's daemon, which may lead or stand by; null with is_host=0.
    [[nodiscard]] rendezvous::Daemon* daemon() const;

    /// The job is over and everybody knows it: what etcd has of it goes with the last leader.
    void job_is_over();

  private:
    class Body;
    explicit EtcdRendezvous(std::unique_ptr<Body> body);
    std::unique_ptr<Body> body_;
};

}  // namespace muster::launcher
