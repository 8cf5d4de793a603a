// Checks over a short connection whether the peer that closed our connection without an answer is PyTorch's store, and
// whether torchrun waits in it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

struct StoreProbeTarget {
    Endpoint remote;  ///< a numeric address
    std::string job;
};

/// Calls `handler` from the io_context, once, if a PyTorch store answers within 5 s that is not muster's own: with
/// whether torchrun's c10d rendezvous of the job lies in it. Does nothing less than 5 s after `asked_at`, which it
/// sets.
void ask_store(boost::asio::io_context& io, Instant& asked_at, const StoreProbeTarget& question,
               std::function<void(bool)> handler);

}  // namespace muster::rendezvous
