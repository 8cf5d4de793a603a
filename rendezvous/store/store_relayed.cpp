// Relays: frames become calls for the connections of their clients.
#include "rendezvous/store/store_relayed.h"

#include "rendezvous/base/text/text.h"
#include "rendezvous/store/store_server_impl.h"

namespace muster::rendezvous {

namespace {

// What a client takes of the heap while it says nothing: its connection, its node in the map, and their links.
constexpr std::size_t relayed_bytes = sizeof(StoreConnection) + sizeof(RelayedClient) + 8 * sizeof(void*);

}  // namespace

void StoreServer::Impl::begin_relay(StoreConnection& relay) {
    relay.phase = StoreConnection::Phase::relaying;
    relay.relayed = std::make_unique<RelayedClients>();
}

/// A paused client pauses its relay, as its relay's connection is the one that has to be written first. So do many
/// clients with small answers.
StoreFlow StoreServer::Impl::serve_relayed(StoreConnection& relay, std::string_view bytes) {
    auto& relayed = *relay.relayed;
    relayed.sent_bytes = 0;
    resume_relayed(relay);
    while (!bytes.empty() && relayed.paused.empty() && relayed.sent_bytes < config.output_bytes_pause) {
        const auto piece = relayed.reader.next(bytes);
        if (!piece) break;
        piece->bytes.empty() ? end_relayed(relay, piece->client) : serve_client(relay, *piece);
        if (relay.phase == StoreConnection::Phase::closed) return StoreFlow::closed;
    }
    relay.paused = !relayed.paused.empty() || !bytes.empty();
    if (!relay.paused) return StoreFlow::read;
    relay.held.assign(bytes);
    return charge(relay) ? StoreFlow::paused : StoreFlow::closed;
}

void StoreServer::Impl::serve_client(StoreConnection& relay, const c10d::RelayReader::Piece& piece) {
    auto& clients = relay.relayed->clients;
    auto found = clients.find(piece.client);
    if (found == clients.end()) {
        if (const auto objection = take_relayed(relay); !objection.empty()) return close(relay, objection);
        found = clients.try_emplace(piece.client, *relay.peer, relay.relayed->sent_bytes, piece.client).first;
        found->second.connection = &add(found->second, relay.source);
        found->second.connection->is_relayed = true;
    }
    if (serve(*found->second.connection, piece.bytes) == StoreFlow::paused)
        relay.relayed->paused.push_back(piece.client);
}

/// Empty: there is a place for one more client, and it is taken.
std::string StoreServer::Impl::take_relayed(const StoreConnection& relay) {
    const auto count = relay.relayed->clients.size();
    if (count >= config.relayed_per_relay_max)
        return cat("relay: it has ", count, " clients, the maximum of one relay");
    if (relayed_count >= config.relayed_count_max)
        return cat("relay: the store serves ", relayed_count, " clients of relays, its maximum");
    if (auto taken = map.take_bytes(relayed_bytes); !taken) return cat("relay: ", taken.error().context);
    ++relayed_count;
    return {};
}

void StoreServer::Impl::end_relayed(StoreConnection& relay, std::uint32_t id) {
    const auto found = relay.relayed->clients.find(id);
    if (found == relay.relayed->clients.end()) return;
    forget(*found->second.connection);
    relay.relayed->clients.erase(found);
    map.give_bytes(relayed_bytes);
    --relayed_count;
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
