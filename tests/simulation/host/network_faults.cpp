// What befalls connections, beside their ordinary life in network.cpp.
#include <algorithm>

#include "tests/simulation/host/network.h"

namespace muster::simulation {

void Network::process_gone(StreamHandler* handler) {
    std::erase_if(listeners_, [handler](const auto& entry) { return entry.second.handler == handler; });
    for (auto& [id, connection] : connections_) {
        for (const int side : {0, 1}) {
            if (connection.handler[side] != handler) continue;
            connection.handler[side] = nullptr;
            // Unread bytes make the kernel send a reset in place of an orderly end.
            const bool unread = !connection.from[1 - side].under_way.empty();
            queue(id, side, unread ? Kind::reset : Kind::end, {});
        }
    }
}

void Network::power_lost(HostIndex host) {
    dark_.insert(host);
    std::erase_if(listeners_, [host](const auto& entry) { return entry.first.host == host; });
    for (auto& [id, connection] : connections_) {
        for (const int side : {0, 1}) {
            if (connection.host[side] != host) continue;
            connection.handler[side] = nullptr;
            connection.half_open[side] = true;
            connection.from[side].under_way.clear();
        }
    }
}

void Network::power_back(HostIndex host) {
    dark_.erase(host);
    resume_held();
}

void Network::heal(HostIndex from, HostIndex to) {
    cut_.erase({from, to});
    resume_held();
}

void Network::heal_all() {
    cut_.clear();
    for (auto& [id, connection] : connections_) {
        for (const int side : {0, 1}) {
            connection.from[side].stalled_until = {};
            connection.from[side].held_for = 0;
            if (auto held = std::exchange(connection.from[side].held, {}); !held.empty())
                queue(id, side, Kind::bytes, std::move(held));
        }
    }
    diverted_.clear();
    tampered_next_.clear();
    resume_held();
}

bool Network::reset_one(HostIndex host) {
    const std::uint64_t id = pick_open(host, [](const Connection&) { return true; });
    if (id == 0) return false;
    reset_from_both_sides(connections_.at(id), id);
    return true;
}

/// Something between the two (a firewall) resets the connection: each side has got some prefix of what was sent to it.
void Network::reset_from_both_sides(Connection& connection, std::uint64_t id) {
    for (const int side : {0, 1}) {
        Direction& direction = connection.from[side];
        if (direction.shut) continue;
        std::size_t kept = random_.below(direction.under_way.size() + 1);
        // The confirmation of the connection itself is not lost here: both sides are open.
        if (kept < direction.under_way.size()) {
            auto& last = direction.under_way[kept];
            if (last.kind == Kind::bytes) last.bytes.resize(random_.below(last.bytes.size() + 1)), ++kept;
        }
        direction.under_way.resize(kept);
        queue(id, side, Kind::reset, {});
    }
}

bool Network::stall_one(HostIndex host, Duration duration) {
    const std::uint64_t id = pick_open(host, [](const Connection&) { return true; });
    if (id == 0) return false;
    for (auto& direction : connections_.at(id).from) direction.stalled_until = events_.now() + duration;
    return true;
}

}  // namespace muster::simulation
