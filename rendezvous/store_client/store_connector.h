// Opens a connection to a store: names, addresses, the handshake, and retries.
#pragma once

#include "rendezvous/store_client/blocking_socket.h"
#include "rendezvous/store_client/store_client.h"
#include "rendezvous/wire/c10d/store_client_core.h"

namespace muster::rendezvous {

struct OpenStore {
    BlockingSocket socket;
    StoreClientCore core;
    SocketAddress address;
};

/// Runs the exchange that the core has begun to its end: sends `bytes`, receives until it is done. When the deadline
/// passes, a wait is called off on the server, for which it has one more second.
Result<void> run_exchange(BlockingSocket& socket, StoreClientCore& core, std::string_view bytes, Instant deadline);

/// One connection to one address, handshake included; once more without PING where the server ends it for that.
Result<OpenStore> open_store(const SocketAddress& address, Instant deadline);

/// Names, addresses and attempts until the deadline of the options.
Result<OpenStore> connect_store(const Endpoint& endpoint, const StoreClientOptions& options);

}  // namespace muster::rendezvous
