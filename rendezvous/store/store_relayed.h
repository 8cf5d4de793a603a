// The clients behind one relay: each has a StoreConnection of its own, and its replies go out in frames. Private to
// store_server*.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/store/store_server.h"
#include "rendezvous/wire/c10d/relay.h"

namespace muster::rendezvous {

class RelayedClient final : public StorePeer {
  public:
    /// Adds to `sent_bytes` what it sends. Both references outlive it.
    RelayedClient(StorePeer& relay, std::size_t& sent_bytes, std::uint32_t id)
        : relay_(relay), sent_bytes_(sent_bytes), id_(id) {}

    void send(std::string_view bytes) override {
        if (bytes.empty()) return;
        begin_frame(bytes.size());
        relay_.send(bytes);
    }
    void send(SharedValue value) override {
        if (value->empty()) return;
        begin_frame(value->size());
        relay_.send(std::move(value));
    }
    void close(std::string why) override {
        begin_frame(0);
        relay_.client_closed(why);
    }

    StoreConnection* connection = nullptr;

  private:
    void begin_frame(std::size_t size) {
        std::string header;
        c10d::append_relay_header(header, id_, static_cast<std::uint32_t>(size));
        sent_bytes_ += header.size() + size;
        relay_.send(std::string_view(header));
    }

    StorePeer& relay_;
    std::size_t& sent_bytes_;
    const std::uint32_t id_;
};

struct RelayedClients {
    c10d::RelayReader reader;
    std::map<std::uint32_t, RelayedClient> clients;
    std::vector<std::uint32_t> paused;  ///< Those that wait for StoreServer::resume() of the relay.
    std::size_t sent_bytes = 0;         ///< To all clients since the relay was last served.
};

}  // namespace muster::rendezvous
