// The names of things that cross the wire. See house vocabulary in rendezvous/PROTOCOL.md.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

/// One sealed membership of a job: numbered from 0, agreed by all its nodes, never reused.
using Round = std::int64_t;
inline constexpr Round no_round = -1;

/// A random number that an agent process draws once at its start: tells a node's second agent from its first one
/// that reconnects.
using Incarnation = std::uint64_t;

/// Who an agent is. Two agents may share a host, so the name alone identifies nothing.
struct NodeIdentity {
    std::string host;  ///< Host name.
    std::int32_t pid = 0;
    Incarnation incarnation = 0;

    friend bool operator==(const NodeIdentity&, const NodeIdentity&) = default;
};

}  // namespace muster
