// TLS at the ends of connections, as client/tls_handshake.cpp, client/link.h and net/tls_stream.cpp have it. Whatever
// happens between the ends, one hears only what the other has said, in order: the invariant "tls".
#include <array>

#include "rendezvous/client/tls_handshake.h"
#include "tests/simulation/host/network.h"

namespace muster::simulation {

using State = rendezvous::PskChannel::State;

bool Network::is_sealed(StreamId stream) const {
    const auto found = connections_.find(connection_of(stream));
    return found != connections_.end() && found->second.seal[side_of(stream)].channel != nullptr;
}

std::string Network::identity(StreamId stream) const {
    return is_sealed(stream) ? connections_.at(connection_of(stream)).seal[side_of(stream)].channel->identity() : "";
}

void Network::shake_hands(std::uint64_t id, Duration timeout) {
    Connection& connection = connections_.at(id);
    if (tampered_next_.erase(connection.host[0]) > 0) await_words(connection);
    Seal& seal = connection.seal[0];
    seal.channel = std::make_unique<rendezvous::PskChannel>(seal.context);
    send_sealed(id, 0);
    events_.after(timeout, [this, id] {
        const auto found = connections_.find(id);
        if (found == connections_.end() || found->second.seal[0].begun || found->second.handler[0] == nullptr) return;
        StreamHandler* const caller = std::exchange(found->second.handler[0], nullptr);
        queue(id, 0, Kind::end, {});
        tell_end(caller, id, 0, "no answer to TLS");
    });
}

void Network::send_sealed(std::uint64_t id, int side) {
    auto& channel = *connections_.at(id).seal[side].channel;
    std::string bytes(channel.output());
    channel.drop_output(bytes.size());
    if (!bytes.empty()) send_in_pieces(id, side, std::move(bytes));
}

/// A handler may close the connection when it hears something.
void Network::take(std::uint64_t id, int side, std::string bytes) {
    Seal& seal = connections_.at(id).seal[side];
    const bool is_server = seal.context && side == 1;
    if (is_server && !seal.begun && !seal.channel) {
        if (static_cast<unsigned char>(bytes.front()) == rendezvous::PskChannel::first_byte)
            seal.channel = std::make_unique<rendezvous::PskChannel>(seal.context);
        else if (connections_.at(id).seal[0].channel)
            return close(stream_of(id, side));  // somebody has changed it, and other hosts are heard inside TLS alone
        else
            open(id, side);
    }
    if (!connections_.contains(id)) return;
    if (!seal.channel) return hear(id, side, std::move(bytes));
    std::string plain;
    std::array<char, 4096> place;
    std::string_view wire = bytes;
    while (const auto count = seal.channel->read(wire, place)) plain.append(place.data(), count);
    send_sealed(id, side);
    const auto state = seal.channel->state();
    // What it heard in the handshake's last read counts, also where that read ended in a failure.
    if (!seal.begun && (state == State::open || state == State::ended || !plain.empty())) open(id, side);
    if (!plain.empty() && connections_.contains(id)) hear(id, side, std::move(plain));
    if (state == State::failed && connections_.contains(id)) fail_tls(id, side);
}

void Network::open(std::uint64_t id, int side) {
    Connection& connection = connections_.at(id);
    connection.seal[side].begun = true;
    if (side == 0) return connection.handler[0]->stream_opened(stream_of(id, 0));
    if (connection.seal[1].channel && !connection.seal[0].context)
        chronicle_.violated("tls", "the daemon has finished a handshake with an impostor, who has no key");
    connection.handler[1]->stream_accepted(stream_of(id, 1), connection.port);
}

void Network::hear(std::uint64_t id, int side, std::string plain) {
    Connection& connection = connections_.at(id);
    if (connection.handler[side] == nullptr) return;
    // Else one of the two is the man himself, or an agent without a key.
    if (connection.seal[0].context && connection.seal[side].context) {
        auto& unheard = connection.seal[side].unheard;
        if (!unheard.starts_with(plain))
            chronicle_.violated("tls", cat(side == 0 ? "an agent" : "the daemon", " has heard ", plain.size(),
                                           " bytes that its peer has not said next"));
        unheard.erase(0, plain.size());
    }
    connection.handler[side]->stream_received(stream_of(id, side), std::move(plain));
}

/// The reason goes to the peer, then the end.
void Network::fail_tls(std::uint64_t id, int side) {
    Connection& connection = connections_.at(id);
    chronicle_.count(Happening::tls_failed);
    StreamHandler* const handler = std::exchange(connection.handler[side], nullptr);
    auto why = connection.seal[side].channel->why();
    queue(id, side, Kind::end, {});
    tell_end(handler, id, side, std::move(why));
}

/// The connection is over at `side`, where `handler` sat.
void Network::tell_end(StreamHandler* handler, std::uint64_t id, int side, std::string why) {
    const Connection& connection = connections_.at(id);
    const Seal& seal = connection.seal[side];
    const bool is_shaking = (seal.channel || (side == 1 && seal.context)) && !seal.begun;
    rendezvous::ConnectionFailed failed;
    if (is_shaking && side == 0)
        failed = rendezvous::judge_handshake(*seal.channel, why, cat("host", connection.host[1]));
    forget_if_over(id);
    if (handler == nullptr || (is_shaking && side == 1)) return;
    if (is_shaking) return handler->stream_failed(stream_of(id, side), std::move(failed));
    handler->stream_closed(stream_of(id, side), std::move(why));
}

}  // namespace muster::simulation
