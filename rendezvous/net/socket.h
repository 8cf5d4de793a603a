// The few socket calls that the loop's parts share: addresses without name service, and options.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "rendezvous/base/time.h"

namespace muster::rendezvous {

class SocketAddress {
  public:
    static SocketAddress any_v4();
    static SocketAddress any_v6();
    static SocketAddress from(const sockaddr* address, socklen_t size);
    static SocketAddress local_of(int fd);

    [[nodiscard]] int family() const { return storage_.ss_family; }
    [[nodiscard]] bool is_any() const;
    [[nodiscard]] std::uint16_t port() const;
    void set_port(std::uint16_t port);
    /// Digits only, never a name: a reverse look-up would stop the loop for as long as DNS likes. IPv4 mapped into IPv6
    /// is shown as IPv4.
    [[nodiscard]] std::string numeric() const;

    [[nodiscard]] const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    [[nodiscard]] socklen_t size() const { return size_; }
    /// For accept4 and getsockname.
    sockaddr* writable_data() { return reinterpret_cast<sockaddr*>(&storage_); }
    socklen_t* writable_size() { return &size_; }

  private:
    sockaddr_storage storage_{};
    socklen_t size_ = sizeof(sockaddr_storage);
};

/// Failures are ignored: every option here only makes a working connection better.
void set_option(int fd, int level, int name, int value);

/// Each answer goes out at once; a peer that vanished without a word is noticed: by keep-alive probes while the
/// connection is idle, by unacknowledged data after `silence_max`.
void tune_stream(int fd, Duration silence_max);

/// For the agents' heartbeats: a lost segment of a thin stream is sent again after one interval each time, without
/// doubling it, so that loss does not look like silence.
void tune_thin_stream(int fd);

}  // namespace muster::rendezvous
