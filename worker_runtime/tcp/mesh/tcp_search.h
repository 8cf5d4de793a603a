// Finds which of a rank's addresses leads to it from here. Attempts start one after another and run in parallel, as in
// RFC 8305. An address is found when the right rank answers there: another rank may have the same address in another
// network.
#pragma once

#include <poll.h>

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/tcp/mesh/tcp_call.h"
#include "worker_runtime/tcp/mesh/tcp_hello.h"

namespace muster::runtime {

/// Makes one connection with a rank.
class TcpSearch {
  public:
    /// `addresses` is not empty, best first. Begins at the first dial().
    TcpSearch(const TcpHello& hello, const std::vector<SocketAddress>& addresses, const TcpPair& pair);

    [[nodiscard]] std::size_t address_count() const { return tries_.size(); }
    [[nodiscard]] int rank() const { return static_cast<int>(tries_.front().hello().to); }
    [[nodiscard]] Instant due() const;
    /// Tries whatever is due. An error: no descriptor is left.
    Result<void> dial(Instant now);

    /// One entry for each address.
    void add_to(std::vector<pollfd>& polled) const;
    /// `polled`: the entries, after poll(). The call that stands, or null.
    TcpCall* serve(const pollfd* polled, Instant now);

    /// No address is worth another try.
    [[nodiscard]] bool hopeless() const;
    /// "10.0.0.1 port 4711: no answer, 172.17.0.1 port 4712: Connection refused".
    [[nodiscard]] std::string what_was_tried() const;

  private:
    std::vector<TcpCall> tries_;
    std::size_t begun_ = 0;  ///< Number of attempts begun.
    Instant next_turn_{};
};

/// Does nobody listen at a rank's addresses any more? Tries to connect tell: one after the other, until one stands, and
/// then that one again and again.
class TcpProbe {
  public:
    TcpProbe(std::vector<SocketAddress> addresses, Instant due) : addresses_(std::move(addresses)), due_(due) {}

    [[nodiscard]] Instant due() const { return due_; }
    [[nodiscard]] int fd() const { return socket_.get(); }

    // True: refused where a connection stood before, or at all addresses.
    /// When it is due.
    bool begin(Instant now);
    /// When the socket is writable.
    bool end(Instant now);

    /// Where a rank that is there would answer.
    [[nodiscard]] std::vector<SocketAddress> candidates() const {
        return leads_ ? std::vector{addresses_[at_]} : addresses_;
    }

  private:
    bool ended(int failure, Instant now);

    std::vector<SocketAddress> addresses_;
    std::size_t at_ = 0;
    std::size_t refused_count_ = 0;  ///< Refusals since the attempt at the first address.
    bool leads_ = false;             ///< A connection was established at the current address.
    FileDescriptor socket_;
    Instant due_{};
};

/// Refused at all of `addresses`, as far as `limit` shows.
bool all_refuse(const std::vector<SocketAddress>& addresses, Duration limit);

}  // namespace muster::runtime
