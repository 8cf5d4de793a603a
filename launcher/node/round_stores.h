// The agent's round stores over rendezvous/net: on this node, for one round at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/supervision/round_store_host.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/servers/round_store.h"

namespace muster::launcher {

class RoundStores final : public agent::RoundStoreHost {
  public:
    struct Plumbing {
        rendezvous::EventLoop& loop;  ///< outlives this
        rendezvous::PostToOwner post;
        std::function<native::PeerAnswer(const native::PeerAsk&)> answer;  ///< on the owner's thread
        std::vector<std::string> addresses;                                ///< at which the other nodes know this one
    };
    RoundStores(const LaunchConfig& config, Plumbing plumbing);

    /// c10d: a RoundStore, which is store and peer port in one. With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: a port that
    /// was free a moment ago, for worker rank 0 to bind. static: no store, it is the daemon's. The last two open a
    /// RoundStore all the same, because peers must be able to ask.
    Result<agent::RoundPorts> open() override;
    void close() override;

  private:
    Plumbing plumbing_;
    rendezvous::ListenConfig listen_;
    bool serves_workers_ = true;
    bool probes_ = false;
    std::unique_ptr<rendezvous::RoundStore> store_;
};

}  // namespace muster::launcher
