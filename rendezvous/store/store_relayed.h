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
    RelayedClient(StorePeer& relay, std::uint32_t id) : relay_(relay), id_(id) {}

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

    StoreConnection* connection = nullptr;  ///< Null: refused. The relay has been told, and will forget it.

  private:
    void begin_frame(std::size_t size) {
        std::string header;
        c10d::append_relay_header(header, id_, static_cast<std::uint32_t>(size));
        relay_.send(std::string_view(header));
    }

    StorePeer& relay_;
    const std::uint32_t id_;
};

struct RelayedClients {
    c10d::RelayReader reader;
    std::map<std::uint32_t, RelayedClient> clients;
    std::vector<std::uint32_t> paused;  ///< Those that wait for StoreServer::resume() of the relay.
};

}  // namespace muster::rendezvous
