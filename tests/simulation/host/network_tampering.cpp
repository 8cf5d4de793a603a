// What a man in the middle does to TLS connections. He has recorded what went over the wire, and has no key.
#include "tests/simulation/host/network.h"
#include "tests/simulation/host/tamper.h"

namespace muster::simulation {

namespace {

constexpr std::size_t recorded_bytes_max = 8 * 1024, recordings_max = 8;

}  // namespace

bool Network::tamper_one(HostIndex host) {
    const auto id = pick_open(host, [](const Connection& connection) { return connection.seal[0].context != nullptr; });
    if (id == 0) return false;
    await_words(connections_.at(id));
    return true;
}

void Network::await_words(Connection& connection) {
    connection.from[random_.below(2)].held_for = 1 + random_.below(2);
}

std::string Network::recorded(bool accepted) {
    std::vector<std::string> all = recordings_[accepted ? 1 : 0];
    for (const auto& [id, connection] : connections_)
        if (connection.seal[0].context) all.push_back(connection.from[accepted ? 1 : 0].recorded);
    return all.empty() ? std::string() : random_.pick(all);
}

void Network::record(const Connection& connection) {
    for (const int side : {0, 1}) {
        auto& kept = recordings_[side];
        kept.push_back(connection.from[side].recorded);
        if (kept.size() > recordings_max) kept.erase(kept.begin());
    }
}

/// True: he holds `bytes` back, or has dropped them. Else they go on, perhaps changed.
bool Network::tampers(Connection& connection, int side, std::string& bytes) {
    auto& direction = connection.from[side];
    direction.recorded += bytes.substr(0, recorded_bytes_max - std::min(recorded_bytes_max, direction.recorded.size()));
    if (direction.held_for == 0) return false;
    direction.held += bytes;
    if (--direction.held_for > 0) return true;
    bytes = std::exchange(direction.held, {});
    tamper(bytes, recorded(random_.chance(500)), [this](std::uint64_t end) { return random_.below(end); });
    chronicle_.count(connection.seal[0].begun ? Happening::tls_tampered : Happening::tls_handshake_tampered);
    return bytes.empty();
}

}  // namespace muster::simulation
