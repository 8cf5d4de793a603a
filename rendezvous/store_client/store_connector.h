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

/// Runs the exchange that the core has begun: sends `bytes` and receives until it is done. After the deadline it
/// cancels a wait on the server, with a timeout of 1 s.
Result<void> run_exchange(BlockingSocket& socket, StoreClientCore& core, std::string_view bytes, Instant deadline);

/// Connects to any address of the endpoint, with retries until the options' deadline.
Result<OpenStore> connect_store(const Endpoint& endpoint, const StoreClientOptions& options);

}  // namespace muster::rendezvous
