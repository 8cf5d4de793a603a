// Peers that ask for a place: agents, and connections that must be turned away.
#pragma once

#include <chrono>
#include <string>

#include "rendezvous/wire/native/codec.h"
#include "tests/integration/net/running_daemon.h"

namespace muster {

/// After the end of a connection: the daemon learns of it by itself, and until then it may refuse.
inline bool serves_again(const RunningDaemon& running) {
    for (const auto until = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < until;) {
        const auto socket = running.connect();
        socket.send(c10d_bytes::validate + c10d_bytes::ping());
        if (socket.receive(4) == c10d_bytes::pong) return true;
    }
    return false;
}

// An agent that joins a job of so many nodes.
inline std::string agent_bytes(std::uint64_t incarnation, std::uint32_t nodes = 4, std::string job = "quota") {
    native::Hello hello;
    hello.job = std::move(job);
    hello.node = {.host = "here", .pid = 1, .incarnation = incarnation};
    native::Join join;
    join.terms.nodes_min = join.terms.nodes_max = nodes;
    std::string bytes;
    native::append_frame(bytes, hello);
    native::append_frame(bytes, join);
    native::append_frame(bytes, native::Ping{});
    return bytes;
}

/// Another connection is closed at once, and not by the handshake deadline, where that is longer than a socket waits.
inline bool is_turned_away(const RunningDaemon& running) {
    return running.connect().closed_by_peer();
}

}  // namespace muster
