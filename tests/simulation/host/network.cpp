#include "tests/simulation/host/network.h"

#include <algorithm>

namespace muster::simulation {

void Network::listen(Address at, StreamHandler* handler, Tls tls) {
    listeners_[at] = {handler, std::move(tls)};
}

void Network::unlisten(Address at) {
    listeners_.erase(at);
}

StreamId Network::connect(HostIndex from, Address to, Duration timeout, StreamHandler* handler, Tls tls) {
    const std::uint64_t id = next_connection_++;
    Connection& connection = connections_[id];
    connection.host[0] = from;
    connection.host[1] = to.host;
    connection.handler[0] = handler;
    connection.handler[1] = nullptr;
    connection.port = to.port;
    connection.seal[0].context = std::move(tls);
    if (random_.chance(temper_.lose_syn_permille)) {
        fail_connect(id, timeout, "no answer");
        return stream_of(id, 0);
    }
    // The request's way there; the answer's way back is part of reach_listener.
    const Duration there = latency();
    events_.after(there, [this, id, to, timeout, there] {
        const auto found = connections_.find(id);
        if (found == connections_.end() || found->second.handler[0] == nullptr) return;
        const HostIndex caller = found->second.host[0];
        if (!reaches(caller, to.host) || !reaches(to.host, caller)) {
            fail_connect(id, timeout - std::min(there, timeout), "no answer");
        } else if (random_.chance(temper_.refuse_permille) || !listeners_.contains(to)) {
            if (listeners_.contains(to)) chronicle_.count(Happening::connect_refused);
            fail_connect(id, latency(), "connection refused");
        } else {
            reach_listener(id, timeout);
        }
    });
    return stream_of(id, 0);
}

/// The caller's side is open once the answer is back; the listener's once the caller's first bytes, or its bare
/// confirmation, have followed: so the confirmation is the first segment of the caller's direction.
void Network::reach_listener(std::uint64_t id, Duration timeout) {
    events_.after(latency(), [this, id, timeout] {
        const auto found = connections_.find(id);
        if (found == connections_.end() || found->second.handler[0] == nullptr) return;
        queue(id, 0, Kind::accept, {});
        if (found->second.seal[0].context && !leaves_out_tls) return shake_hands(id, timeout);
        found->second.handler[0]->stream_opened(stream_of(id, 0));
    });
}

void Network::fail_connect(std::uint64_t id, Duration after, std::string why) {
    if (why == "no answer") chronicle_.count(Happening::connect_timed_out);
    events_.after(after, [this, id, why = std::move(why)] {
        const auto found = connections_.find(id);
        if (found == connections_.end()) return;
        StreamHandler* const caller = found->second.handler[0];
        connections_.erase(found);
        if (caller != nullptr) caller->stream_failed(stream_of(id, 0), {.tried = why});
    });
}

void Network::send(StreamId stream, std::string bytes) {
    const auto found = connections_.find(connection_of(stream));
    if (found == connections_.end() || found->second.from[side_of(stream)].shut || bytes.empty()) return;
    auto& seal = found->second.seal[side_of(stream)];
    if (seal.context) found->second.seal[1 - side_of(stream)].unheard += bytes;
    if (!seal.channel) return send_in_pieces(connection_of(stream), side_of(stream), std::move(bytes));
    seal.channel->write(bytes);
    send_sealed(connection_of(stream), side_of(stream));
}

void Network::send_in_pieces(std::uint64_t id, int side, std::string bytes) {
    while (bytes.size() > 1 && random_.chance(temper_.split_permille)) {
        chronicle_.count(Happening::chunks_split);
        const std::size_t cut_at = 1 + random_.below(bytes.size() - 1);
        queue(id, side, Kind::bytes, bytes.substr(0, cut_at));
        bytes.erase(0, cut_at);
    }
    queue(id, side, Kind::bytes, std::move(bytes));
}

void Network::close(StreamId stream) {
    const std::uint64_t id = connection_of(stream);
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    found->second.handler[side_of(stream)] = nullptr;
    if (auto& channel = found->second.seal[side_of(stream)].channel) {
        channel->close();
        send_sealed(id, side_of(stream));
    }
    queue(id, side_of(stream), Kind::end, {});
    forget_if_over(id);
}

HostIndex Network::peer_host(StreamId stream) const {
    const auto found = connections_.find(connection_of(stream));
    return found == connections_.end() ? 0 : found->second.host[1 - side_of(stream)];
}

std::size_t Network::unsent_bytes(StreamId stream) const {
    const auto found = connections_.find(connection_of(stream));
    if (found == connections_.end()) return 0;
    std::size_t sum = 0;
    for (const auto& segment : found->second.from[side_of(stream)].under_way) sum += segment.bytes.size();
    return sum;
}

bool Network::reaches(HostIndex from, HostIndex to) const {
    if (dark_.contains(to) || dark_.contains(from)) return false;
    return from == to || !cut_.contains({from, to});
}

void Network::queue(std::uint64_t id, int side, Kind kind, std::string bytes) {
    Connection& connection = connections_.at(id);
    Direction& direction = connection.from[side];
    if (direction.shut) return;
    if (kind == Kind::end || kind == Kind::reset) direction.shut = true;
    if (kind == Kind::bytes && connection.seal[0].context && tampers(connection, side, bytes)) return;
    direction.last_arrival = std::max(direction.last_arrival, events_.now() + latency());
    direction.under_way.push_back({kind, std::move(bytes), direction.last_arrival, events_.now()});
    plan_delivery(id, side);
}

void Network::plan_delivery(std::uint64_t id, int side) {
    Direction& direction = connections_.at(id).from[side];
    if (direction.delivery_planned || direction.under_way.empty()) return;
    direction.delivery_planned = true;
    const Moment when = std::max(direction.under_way.front().arrives, direction.stalled_until);
    events_.at(when, [this, id, side] { deliver(id, side); });
}

void Network::deliver(std::uint64_t id, int side) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Direction& direction = found->second.from[side];
    direction.delivery_planned = false;
    if (direction.under_way.empty()) return;
    const Moment due = std::max(direction.under_way.front().arrives, direction.stalled_until);
    if (due > events_.now()) return plan_delivery(id, side);
    if (!reaches(found->second.host[side], found->second.host[1 - side])) return give_up_if_overdue(id, side);
    Segment segment = std::move(direction.under_way.front());
    direction.under_way.pop_front();
    // What arrived close behind is often read together with it.
    while (segment.kind == Kind::bytes && !direction.under_way.empty() &&
           direction.under_way.front().kind == Kind::bytes && direction.under_way.front().arrives <= events_.now() &&
           random_.chance(500)) {
        segment.bytes += direction.under_way.front().bytes;
        direction.under_way.pop_front();
    }
    plan_delivery(id, side);
    hand_over(id, side, std::move(segment));
}

void Network::hand_over(std::uint64_t id, int side, Segment segment) {
    Connection& connection = connections_.at(id);
    const int receiver = 1 - side;
    if (segment.kind == Kind::accept) {
        const auto diverted =
            connection.seal[0].context ? diverted_.extract(connection.host[0]) : decltype(diverted_)::node_type();
        const auto found = listeners_.find({connection.host[receiver], connection.port});
        if (diverted.empty() && found == listeners_.end()) return queue(id, receiver, Kind::reset, {});
        const Listener listener = diverted.empty() ? found->second : Listener{diverted.mapped(), nullptr};
        connection.handler[receiver] = listener.handler;
        connection.seal[receiver].context = listener.tls;
        return listener.tls ? void() : listener.handler->stream_accepted(stream_of(id, receiver), connection.port);
    }
    StreamHandler* const handler = connection.handler[receiver];
    if (segment.kind == Kind::bytes) {
        if (handler != nullptr) return take(id, receiver, std::move(segment.bytes));
        // Nobody is there: the receiving host's kernel refuses.
        if (connection.half_open[receiver]) chronicle_.count(Happening::half_open_peer);
        return queue(id, receiver, Kind::reset, {});
    }
    connection.handler[receiver] = nullptr;
    connection.from[receiver].shut = true;
    if (segment.kind == Kind::reset) {
        // What was under way the other way is lost, but for a reset from something between the two.
        auto& other_way = connection.from[receiver].under_way;
        std::erase_if(other_way, [](const Segment& one) { return one.kind != Kind::reset; });
    }
    tell_end(handler, id, receiver, segment.kind == Kind::end ? "closed by the peer" : "reset by the peer");
}

/// The link is cut: what waits stays until it heals, unless its sender has a limit for that.
void Network::give_up_if_overdue(std::uint64_t id, int side) {
    if (temper_.user_timeout == never) return;
    Connection& connection = connections_.at(id);
    Direction& direction = connection.from[side];
    const Moment limit = direction.under_way.front().sent + temper_.user_timeout;
    if (events_.now() < limit) {
        direction.delivery_planned = true;
        events_.at(limit, [this, id, side] { deliver(id, side); });
        return;
    }
    StreamHandler* const handler = connection.handler[side];
    connection.handler[side] = nullptr;
    direction.under_way.clear();
    direction.shut = true;
    tell_end(handler, id, side, "timed out");
}

void Network::resume_held() {
    for (auto& [id, connection] : connections_) {
        for (const int side : {0, 1}) {
            Direction& direction = connection.from[side];
            if (direction.under_way.empty()) continue;
            // Of what was held; the rest is under way. Retransmissions come with growing pauses.
            if (auto& arrives = direction.under_way.front().arrives; arrives <= events_.now()) {
                arrives = events_.now() + random_.between(Duration{0}, Duration{200ms});
                direction.last_arrival = std::max(direction.last_arrival, arrives);
            }
            // Also where only the sender's giving up was planned.
            direction.delivery_planned = false;
            plan_delivery(id, side);
        }
    }
}

void Network::forget_if_over(std::uint64_t id) {
    const Connection& connection = connections_.at(id);
    for (const int side : {0, 1}) {
        if (connection.handler[side] != nullptr || !connection.from[side].under_way.empty()) return;
    }
    if (connection.seal[0].context) record(connection);
    connections_.erase(id);
}

}  // namespace muster::simulation
