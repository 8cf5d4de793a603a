// The random bytes that the nodes of one round share (Assigned::secret), and how the next daemon finds them again.
// Pure.
//
// Each round has bytes of its own, so its keys differ from those of every other round and launch, and they are the same
// on all of its nodes, whichever of the job's keys a node has. Kept state may lie in etcd, so it has no bytes of a key:
// it has a salt, from which only the holder of the job's key computes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

struct RoundSecret {
    std::string bytes;  ///< Empty: the job has no key, or this daemon has none that gives them.
    std::string salt;   ///< Kept. Empty: there never were any.
    std::string mark;   ///< Kept. Shows by which of the job's keys they were made.

    /// New ones, made with the first hash. `unguessable` must never be the same twice.
    static RoundSecret draw(const std::vector<native::KeyedHash>& hashes, std::string_view unguessable);
    /// Computes the bytes from what was kept.
    void find_again(const std::vector<native::KeyedHash>& hashes);
};

}  // namespace muster::rendezvous
