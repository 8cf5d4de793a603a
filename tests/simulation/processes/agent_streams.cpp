// The sockets of an AgentProcess: its connection to the daemon, and the questions between peers.
#include <algorithm>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"
#include "tests/simulation/processes/agent_process.h"

namespace muster::simulation {

/// The endpoint's, whose name is "host7".
Address AgentProcess::daemon_address() const {
    const auto& endpoint = client_.endpoint();
    Address address = setting_.daemons.front();
    MUSTER_CHECK(parse_number(std::string_view(endpoint.host).substr(4), address.host), endpoint.host);
    return address;
}

void AgentProcess::carry_out(std::vector<rendezvous::ClientOutput> outputs) {
    for (auto& output : outputs) carry_out_one(output);
}

void AgentProcess::carry_out_one(rendezvous::ClientOutput& output) {
    if (std::holds_alternative<rendezvous::Connect>(output)) {
        const auto& keys = setting_.client;
        const auto& key = client_.key_at() == 0 ? keys.key : keys.older_keys[client_.key_at() - 1];
        const auto tls = key.tls_key.empty() ? nullptr : rendezvous::PskContext::client(key.tls_identity, key.tls_key);
        attempt_ = world_.network.connect(setting_.host, daemon_address(), keys.connect_timeout, this, tls);
    } else if (std::holds_alternative<rendezvous::Abandon>(output)) {
        close(attempt_);
    } else if (std::holds_alternative<rendezvous::DropOlder>(output)) {
        for (const auto stream : std::exchange(older_, {})) world_.network.close(stream);
    } else if (std::holds_alternative<rendezvous::Disconnect>(output)) {
        flush();
        close(attempt_);
        close(stream_);
    } else if (const auto* send = std::get_if<rendezvous::Send>(&output)) {
        // Without a connection it is lost: the core sends again what still matters.
        if (stream_) native::append_frame(outbox_, send->message);
    } else if (const auto* request = std::get_if<rendezvous::QueryPeer>(&output)) {
        ask(*request);
    } else if (auto* deliver = std::get_if<rendezvous::Deliver>(&output)) {
        if (std::holds_alternative<native::Drain>(deliver->message)) {
            world_.chronicle.count(Happening::node_drained);
            world_.invariants.agent(incarnation()).left = true;
            setting_.drained();
            if (world_.plant == Plant::deaf_to_drain) return;
        }
        post([this, message = std::move(deliver->message)] { tell(agent::DaemonMessage{message}); });
    } else if (auto* fenced = std::get_if<rendezvous::Fenced>(&output)) {
        world_.chronicle.count(Happening::agent_fenced);
        if (world_.plant == Plant::ignores_fencing) return;
        post([this, why = std::move(fenced->why)] { tell(agent::ClientFenced{why}); });
    } else if (auto* lost = std::get_if<rendezvous::RendezvousLost>(&output)) {
        post([this, why = std::move(lost->why)] { tell(agent::ClientLost{why}); });
    }
}

void AgentProcess::close(std::optional<StreamId>& stream) {
    if (stream) world_.network.close(*stream);
    stream.reset();
}

void AgentProcess::flush() {
    if (outbox_.empty()) return;
    if (stream_) world_.network.send(*stream_, std::move(outbox_));
    outbox_.clear();
    if (stream_) world_.invariants.check_unsent(world_.network.unsent_bytes(*stream_));
}

// ---- questions to peers ----

void AgentProcess::ask(const rendezvous::QueryPeer& request) {
    world_.chronicle.count(Happening::peer_asked);
    if (peers_.above.empty() || request.ask.group_rank != peers_.above.front().group_rank)
        world_.chronicle.count(Happening::parent_stepped_over);
    HostIndex host = 0;
    const bool known = request.peer.address.starts_with("host") &&
                       parse_number(std::string_view(request.peer.address).substr(4), host);
    if (!known || request.peer.port == 0) {
        return post([this, number = request.ask.number] { give(rendezvous::PeerAnswered{number, std::nullopt}); });
    }
    const StreamId stream = world_.network.connect(setting_.host, {host, request.peer.port}, request.timeout, this);
    asks_[stream].question = request.ask;
    world_.events.after(request.timeout, [this, stream] { post([this, stream] { answered(stream, std::nullopt); }); });
}

void AgentProcess::answered(StreamId stream, std::optional<native::PeerAnswer> answer) {
    const auto found = asks_.find(stream);
    if (found == asks_.end()) return;
    const native::PeerAsk question = std::move(found->second.question);
    asks_.erase(found);
    world_.network.close(stream);
    if (setting_.client.peers_hash) forge_answer(question, answer);
    give(rendezvous::PeerAnswered{question.number, std::move(answer)});
}

/// Somebody on the way replaces silence and a "no" by "all have lost it": with the proof of an earlier answer, if there
/// is one. A peer that is believed without proof has said it.
void AgentProcess::forge_answer(const native::PeerAsk& ask, std::optional<native::PeerAnswer>& answer) {
    auto& recorded = recorded_[ask.group_rank];
    if (answer && answer->leader_lost) {
        recorded = *answer;
        return;
    }
    world_.chronicle.count(Happening::peer_forged);
    answer = recorded;
    answer->round = ask.round;
    answer->leader_lost = true;
    answer->all_age_ns = 0;
    if (world_.plant == Plant::believes_any_peer)
        answer->proof = native::proof_of(setting_.client.peers_hash(round_secret_), ask, *answer);
}

void AgentProcess::peer_bytes(StreamId stream, const std::string& bytes) {
    Ask& ask = asks_.at(stream);
    ask.reader.append(bytes);
    auto next = ask.reader.next();
    if (next.has_value() && !next.value()) return;
    const auto* answer = next.has_value() ? std::get_if<native::PeerAnswer>(&*next.value()) : nullptr;
    answered(stream, answer != nullptr ? std::optional(*answer) : std::nullopt);
}

void AgentProcess::asked_bytes(StreamId stream, const std::string& bytes) {
    native::FrameReader& reader = askers_.at(stream);
    reader.append(bytes);
    auto next = reader.next();
    if (next.has_value() && !next.value()) return;
    const auto* question = next.has_value() ? std::get_if<native::PeerAsk>(&*next.value()) : nullptr;
    if (const auto answer = question != nullptr ? client_.answer(*question, now()) : std::nullopt) {
        std::string reply;
        native::append_frame(reply, *answer);
        world_.network.send(stream, std::move(reply));
    }
    askers_.erase(stream);
    world_.network.close(stream);
    give(rendezvous::TimePassed{});
}

// ---- the network ----

void AgentProcess::stream_opened(StreamId stream) {
    post([this, stream] {
        if (stream == attempt_) {
            flush();
            if (stream_) older_.push_back(*stream_);
            stream_ = std::exchange(attempt_, std::nullopt);
            reader_ = native::FrameReader(native::Sender::daemon);
            return give(rendezvous::ConnectionOpened{"daemon", world_.network.is_sealed(stream)});
        }
        const auto ask = asks_.find(stream);
        if (ask == asks_.end()) return;
        std::string question;
        native::append_frame(question, ask->second.question);
        world_.network.send(stream, std::move(question));
    });
}

void AgentProcess::stream_failed(StreamId stream, rendezvous::ConnectionFailed failed) {
    post([this, stream, failed = std::move(failed)] {
        if (stream != attempt_) return answered(stream, std::nullopt);
        attempt_.reset();
        give(failed);
    });
}

void AgentProcess::stream_accepted(StreamId stream, std::uint16_t) {
    askers_.emplace(stream, native::FrameReader(native::Sender::peer));
}

void AgentProcess::stream_received(StreamId stream, std::string bytes) {
    post([this, stream, bytes = std::move(bytes)] {
        if (stream == stream_) return daemon_bytes(bytes);
        if (asks_.contains(stream)) return peer_bytes(stream, bytes);
        if (askers_.contains(stream)) asked_bytes(stream, bytes);
    });
}

void AgentProcess::daemon_bytes(const std::string& bytes) {
    reader_.append(bytes);
    const auto stream = stream_;
    // A message may make the client give this connection up: the rest is then nobody's.
    while (stream_ == stream && alive()) {
        auto next = reader_.next();
        if (next.has_error()) {
            return world_.chronicle.violated("codec", describe(next.error()));
        }
        if (!next.value()) return;
        // Of one that does not lead nothing counts as heard.
        if (!std::holds_alternative<native::NotLeader>(*next.value())) world_.invariants.heard(incarnation());
        if (world_.chronicle.tracing() && !std::holds_alternative<native::Pong>(*next.value())) {
            world_.chronicle.tell(setting_.name, " gets ", native::name(*next.value()), " from ",
                                  client_.endpoint().host);
        }
        if (const auto* peers = std::get_if<native::Peers>(&*next.value())) peers_ = *peers;
        give(rendezvous::MessageReceived{std::move(*next.value())});
    }
}

void AgentProcess::stream_closed(StreamId stream, std::string why) {
    post([this, stream, why = std::move(why)] {
        askers_.erase(stream);
        std::erase(older_, stream);
        if (stream != stream_) return answered(stream, std::nullopt);
        stream_.reset();
        outbox_.clear();
        world_.chronicle.tell(setting_.name, " lost its connection: ", why);
        give(rendezvous::ConnectionClosed{why});
        if (world_.plant == Plant::ends_with_daemon) tell(agent::ClientFenced{"the connection is gone"});
    });
}

}  // namespace muster::simulation
