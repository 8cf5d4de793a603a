// Every limit of the network side, with its reason. The store's quotas are in rendezvous/store/store_config.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rendezvous/base/kernel/memory_limit.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/memory_budget.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

struct NetLimits {
    /// From the accept until the first request is whole: of the store's handshake, a Hello, a HTTP request. A healthy
    /// client can be late by retransmitted segments and a swapped-out host, hence not shorter.
    Duration handshake_timeout = 10s;
    /// Connections of one port: what the limit of open files (RLIMIT_NOFILE) and the memory allow. Two ports of one
    /// process share its files; the listener turns connections away when they are used up.
    std::size_t connections_max = connections_allowed();
    /// Bytes waiting for one reader of the store. The core stops serving who has 1 MiB unread; what may come on top is
    /// one answer (a MULTI_GET of large values) and what others' requests release.
    std::size_t store_unsent_bytes_max = std::size_t{512} << 20;
    /// Bytes waiting for one agent: two of the largest messages (16 MiB).
    std::size_t agent_unsent_bytes_max = std::size_t{32} << 20;
    /// A reader that takes nothing for so long is closed by the kernel (TCP_USER_TIMEOUT), also one that is stopped and
    /// has a full window: 5 min is how long PyTorch's client waits for the store.
    Duration unread_max = 300s;
    /// After the last words to a peer: how long its own end is awaited before the connection is forgotten.
    Duration linger = 2s;
    /// A HTTP request line with its headers; a browser's is below 2 KiB.
    std::size_t http_request_bytes_max = 8'192;
    /// Records and held-back messages that wait for the state store. 100,000 agents with small reports fit.
    std::size_t unpersisted_bytes_max = std::size_t{256} << 20;
    /// Everything that peers can make this port hold: the store, unsent answers, half a message, unpersisted steps.
    std::size_t memory_bytes_max = memory_budget_bytes();
    /// Set: the port takes its memory from this budget, with other ports of its loop. memory_bytes_max is not used
    /// then.
    std::shared_ptr<MemoryBudget> memory{};
    /// Open connections of one source (an address, or an IPv6 network of 64 bits) that are not proven. One host cannot
    /// take the places of the others where the limit of open files is 16,384 or more.
    std::size_t unproven_per_source_max = 8'192;
    /// So many more for each proven agent of the source: the store's clients of a cluster behind one address. A node
    /// has about 16 workers with two connections each.
    std::size_t unproven_per_agent = 64;
    /// A connection that has not joined a job may not hold half a message for longer than this.
    Duration unjoined_max = 30s;
    /// Lines about refused or broken connections in one second; a port scan must not fill a disk.
    std::uint32_t log_lines_per_second_max = 10;

    [[nodiscard]] std::shared_ptr<MemoryBudget> memory_of_port() const {
        return memory ? memory : std::make_shared<MemoryBudget>(memory_bytes_max);
    }
};

}  // namespace muster::rendezvous
