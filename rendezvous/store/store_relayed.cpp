// Relays: frames become calls for the connections of their clients.
#include "rendezvous/store/store_relayed.h"

#include "rendezvous/base/text/text.h"
#include "rendezvous/store/store_server_impl.h"

namespace muster::rendezvous {

void StoreServer::Impl::begin_relay(StoreConnection& relay) {
    relay.phase = StoreConnection::Phase::relaying;
    relay.relayed = std::make_unique<RelayedClients>();
}

/// A paused client pauses its relay, as its relay's connection is the one that has to be written first.
StoreFlow StoreServer::Impl::serve_relayed(StoreConnection& relay, std::string_view bytes) {
    auto& relayed = *relay.relayed;
    while (!bytes.empty() && relayed.paused.empty()) {
        const auto piece = relayed.reader.next(bytes);
        if (!piece) break;
        piece->bytes.empty() ? end_relayed(relay, piece->client) : serve_client(relay, *piece);
        if (relay.phase == StoreConnection::Phase::closed) return StoreFlow::closed;
    }
    relay.paused = !relayed.paused.empty();
    if (!relay.paused) return StoreFlow::read;
    relay.held.assign(bytes);
    return charge(relay) ? StoreFlow::paused : StoreFlow::closed;
}

void StoreServer::Impl::serve_client(StoreConnection& relay, const c10d::RelayReader::Piece& piece) {
    const auto [found, is_new] = relay.relayed->clients.try_emplace(piece.client, *relay.peer, piece.client);
    RelayedClient& client = found->second;
    if (is_new && relayed_count >= config.relayed_count_max)
        return client.close(cat("the store serves ", relayed_count, " clients of relays, its maximum"));
    if (is_new) {
        client.connection = &add(client, relay.source);
        ++relayed_count;
    }
    if (client.connection == nullptr) return;
    if (serve(*client.connection, piece.bytes) == StoreFlow::paused) relay.relayed->paused.push_back(piece.client);
}

void StoreServer::Impl::end_relayed(StoreConnection& relay, std::uint32_t id) {
    const auto found = relay.relayed->clients.find(id);
    if (found == relay.relayed->clients.end()) return;
    if (found->second.connection != nullptr) {
        forget(*found->second.connection);
        --relayed_count;
    }
    relay.relayed->clients.erase(found);
}

void StoreServer::Impl::end_all_relayed(StoreConnection& relay) {
    while (relay.relayed && !relay.relayed->clients.empty()) end_relayed(relay, relay.relayed->clients.begin()->first);
}

void StoreServer::Impl::resume_relayed(StoreConnection& relay) {
    for (const auto id : std::exchange(relay.relayed->paused, {})) {
        const auto found = relay.relayed->clients.find(id);
        if (found == relay.relayed->clients.end()) continue;
        if (resume(*found->second.connection) == StoreFlow::paused) relay.relayed->paused.push_back(id);
    }
}

}  // namespace muster::rendezvous
