// send and receive over TCP: each ordered pair of ranks has its own connection, so messages of different threads wait
// neither for each other nor for collectives.
//
// Sender and receiver each send a header first. The sender's message follows its header at once. Its send is complete
// when the receiver's header has arrived and matches.
#pragma once

#include <cstdint>
#include <set>

#include "muster/operation.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/tcp/collective_header.h"
#include "worker_runtime/tcp/tcp_group.h"
#include "worker_runtime/transport/transport.h"

namespace muster::runtime {

/// This rank's end of one connection, which a large group makes with the first message. One message at a time.
class TcpChannel {
  public:
    /// `group` outlives this.
    TcpChannel(TcpGroup& group, int peer) : group_(group), peer_(peer) {}

    /// A send to the peer or a receive from it.
    Result<void> move(const Operation& operation, const RunTerms& terms);

    /// Has the sender begun another message, or gone? An error in a large group: there it may wait for this rank's
    /// call.
    [[nodiscard]] Result<Incoming> incoming() const;

  private:
    struct Progress;
    Result<bool> send_some(Progress& progress);
    Result<bool> receive_some(Progress& progress);
    Result<void> compare(const Progress& progress);
    Result<void> wait(const Progress& progress, const RunTerms& terms);
    struct Ears;
    [[nodiscard]] Ears ears(short events, bool to_all) const;
    Result<bool> listen(const Ears& ears);
    Error late(const Progress& progress);
    [[nodiscard]] std::string doing(const Operation& operation) const;

    TcpGroup& group_;
    const int peer_;
    const TcpStream* socket_ = nullptr;  ///< The group's.
    std::set<int> ended_;                ///< Ranks whose control connections have ended and stay readable.
    std::uint64_t messages_ = 0;
};

}  // namespace muster::runtime
