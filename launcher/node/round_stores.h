// Opens this node's round store (rendezvous/servers), for one round at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/supervision/round_store_host.h"
#include "launcher/config/launch_config.h"
#include "launcher/node/log_streams.h"
#include "rendezvous/servers/round_store.h"
#include "rendezvous/servers/store_relay.h"

namespace muster::launcher {

class RoundStores final : public agent::RoundStoreHost {
  public:
    struct Plumbing {
        rendezvous::EventLoop& loop;  ///< Must outlive this object.
        rendezvous::PostToOwner post;
        /// Called on the owner's thread.
        std::function<std::optional<native::PeerAnswer>(const native::PeerAsk&)> answer;
        std::vector<std::string> addresses;    ///< Addresses at which the other nodes reach this one.
        std::shared_ptr<MemoryBudget> memory;  ///< Of all ports of this launcher.
        /// Where the workers' log files are; empty: there are none. Called on the owner's thread.
        std::function<std::string()> log_folder{};
        /// At a round's end, the log files of workers that outlive it. Called on the owner's thread.
        std::function<std::vector<std::string>()> kept_logs{};
        /// As Agent::tell_stacks. Called on the owner's thread, with a function for that thread.
        std::function<void(const std::optional<std::set<std::uint32_t>>& ranks, std::function<void(std::string)>)>
            stacks{};
    };
    RoundStores(const LaunchConfig& config, Plumbing plumbing);

    /// c10d: opens a RoundStore, which serves the store and the peer port. With TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1:
    /// returns a free port for worker rank 0 to bind. static: the daemon has the store. The last two still open a
    /// RoundStore as peer port.
    Result<agent::RoundPorts> open() override;
    void serve(const native::Assigned& assigned) override;
    Result<std::optional<Endpoint>> relay(const Endpoint& store) override;
    void close() override;
    /// Calls `done` once on the owner's thread, when viewers have been sent the last lines, as RoundStore::when_read.
    void when_read(std::function<void()> done);

  private:
    bool tell_stacks(const rendezvous::HttpRequest& request, const rendezvous::Connection& asker,
                     rendezvous::AskerGone gone, std::function<void(rendezvous::HttpPage)> answer);

    Plumbing plumbing_;
    rendezvous::ListenConfig listen_;
    bool serves_workers_ = true;
    bool probes_ = false;
    bool is_open_ = false;                           ///< --insecure: the store serves everybody.
    bool relays_ = false;                            ///< --store-relay
    bool has_door_ = false;                          ///< --store-door
    std::vector<rendezvous::ControlKey> logs_keys_;  ///< Of viewers of the log files. Empty: the job has no key.
    std::string key_;  ///< Of the round, for clients of other hosts. Empty: without --store-door.
    LogStreams logs_;
    std::unique_ptr<rendezvous::RoundStore> store_;
    std::unique_ptr<rendezvous::RoundStore> last_;  ///< Of an earlier round, for its viewers alone.
    std::unique_ptr<rendezvous::StoreRelay> relay_;
};

}  // namespace muster::launcher
