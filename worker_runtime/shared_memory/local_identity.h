// What a rank tells the others of its group about where it runs, before they connect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "worker_runtime/shared_memory/shared_layout.h"

namespace muster::runtime {

/// The identity that a rank publishes before it connects.
struct LocalIdentity {
    std::string host;           ///< for messages
    std::string kernel;         ///< boot id
    std::string network_space;  ///< abstract addresses live in a network namespace
    int pid = 0;                ///< for messages; in a container it is the container's
    int node = 0;               ///< the launcher's number of the node
    std::string user;           ///< the effective user, as the user namespace above numbers it
    std::string address;        ///< the listen address of this rank, 32 hexadecimal digits; no secret
    /// Of the proofs towards this rank, where the ranks have no key of their own: 32 hexadecimal digits, which the
    /// store shows to whoever may read it.
    std::string key;

    std::uint32_t format = shared_memory_format;  ///< of what this rank reads and writes in shared memory

    int rank = 0;  ///< in the whole group; the ranks that meet may be a part of it

    static LocalIdentity of_this_process(int rank);
    [[nodiscard]] std::string encode() const;
    static Result<LocalIdentity> decode(const std::string& text);
};

/// "rank 3 (pid 4711 on gpu07)".
std::string describe(const LocalIdentity& identity);

/// True if these two ranks can pass descriptors to each other.
bool can_meet(const LocalIdentity& a, const LocalIdentity& b);

/// Two ranks of one host whose formats differ, and what to do; empty: there are none.
std::string differing_formats(const std::vector<LocalIdentity>& identities);

}  // namespace muster::runtime
