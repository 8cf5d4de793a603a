// A node's relay to the workers' store of a round: the node's workers connect to it at 127.0.0.1, and it speaks to the
// store over one connection. Waits, their ends and all answers are the store's own: the relay only carries bytes.
//
// It dials when the first client speaks. When the connection to the store ends or cannot be made, every client's
// connection is closed, as the store's end would close them; the next client makes it dial again. A client that ends is
// forgotten in the store, with what it waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/listener.h"

namespace muster::rendezvous {

struct StoreRelayConfig {
    Endpoint store;     ///< Numeric. The store must be ours.
    std::string key{};  ///< RoundService::key of the store. Empty: the connection is in clear text.
    LocalUsers local_users = LocalUsers::own;
    NetLimits limits;
    Duration dial_timeout =
        30s;  ///< From the first client's bytes until the store accepts, or with a key has answered the handshake.
    std::uint32_t client_id_max = UINT32_MAX;  ///< The relay connects anew after so many clients; ids are never reused.
};

class StoreRelay {
  public:
    /// Binds any free port of 127.0.0.1 and serves as soon as `loop` runs. `loop` must outlive it. Errors: as
    /// Listener::open and EventLoop::add; invalid_argument for a store without a numeric address.
    static Result<std::unique_ptr<StoreRelay>> open(EventLoop& loop, const StoreRelayConfig& config);
    /// Closes the port and every connection before it returns.
    ~StoreRelay();

    [[nodiscard]] std::uint16_t port() const;
    /// What it holds in memory of what its clients and the store have sent.
    [[nodiscard]] std::size_t held_bytes() const;

  private:
    class Implementation;
    explicit StoreRelay(EventLoop& loop);
    EventLoop& loop_;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
