// What a store may use of the machine. A breach closes the connection that caused it, with the reason in the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/memory_budget.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

struct StoreConfig {
    /// Until then the first bytes must show a protocol family, or the connection is closed: a port scan or a stuck
    /// peer holds a descriptor no longer. PyTorch sends its first bytes right after connecting.
    Duration handshake_timeout = 5s;

    /// Keys, values, queues and half-received requests together. 10,000 ranks of gloo store 0.8 GB.
    /// Used where no `memory` is given.
    std::size_t bytes_max = std::size_t{4} * 1024 * 1024 * 1024;

    /// The budget of the whole daemon, of which the store is a part. It takes nothing when seven eighths are used.
    /// Empty: the store has one of its own of `bytes_max`.
    std::shared_ptr<MemoryBudget> memory{};

    /// Keys and queues together. Jobs use 10^2 to 10^5.
    std::size_t key_count_max = 4'000'000;

    /// Connections, the silent second ones of torch <= 2.0 and those still in their handshake included. Drivers give
    /// what their limit of open files allows.
    std::size_t connection_count_max = 1'000'000;

    /// Clients of relays: these have no descriptor. 20,000 nodes with 16 workers and two connections each fit.
    std::size_t relayed_count_max = 1'000'000;

    /// Clients of one relay, which is closed beyond it. A node has a few hundred workers at most, with several stores
    /// each. Drivers give what one source may connect without a relay (NetLimits::unproven_per_source_max).
    std::size_t relayed_per_relay_max = 8'192;

    /// (connection, missing key) pairs parked at one time. 80,000 ranks that wait for 625 NCCL ids are 50,000,000.
    /// Their memory, 32 bytes each, is charged.
    std::size_t wait_count_max = 64'000'000;

    /// A connection with more unwritten replies than this is not served further until they have gone out, so that a
    /// peer that asks and never reads cannot fill the memory.
    std::size_t output_bytes_pause = 1024 * 1024;

    /// Called with each key that only torchrun's agents use (rendezvous/wire/c10d/C10D.md), and who used it. May be
    /// empty. It must not call the store.
    std::function<void(const std::string& job, const std::string& source)> on_torchrun{};

    /// Seeds the hash of the keys, so that nobody can choose keys that collide. Drivers give a random number; 0 makes
    /// tests repeat.
    std::uint64_t hash_seed = 0;
};

}  // namespace muster::rendezvous
