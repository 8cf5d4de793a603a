// An IP address with a port, in the kernel's form and as text. name_lookup.h resolves names.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace muster {

class SocketAddress {
  public:
    SocketAddress() = default;
    static SocketAddress any_v4();
    static SocketAddress any_v6();
    /// What getaddrinfo and getifaddrs give; nothing for a family that is not IP.
    static std::optional<SocketAddress> from(const sockaddr* address);
    /// "10.0.0.1", "fd00::7", "fe80::1%eth0"; nothing for what is no numeric address.
    static std::optional<SocketAddress> from_numeric(const std::string& address, std::uint16_t port);
    static SocketAddress local_of(int fd);

    [[nodiscard]] int family() const { return storage_.ss_family; }
    [[nodiscard]] bool is_any() const;
    /// IPv6 that means something only together with this host's name of an interface.
    [[nodiscard]] bool is_link_local() const;
    [[nodiscard]] std::uint16_t port() const;
    void set_port(std::uint16_t port);
    /// Digits only, never a name: a reverse look-up would stop the loop for as long as DNS likes. IPv4 mapped into IPv6
    /// is shown as IPv4, link-local IPv6 with its zone ("fe80::1%eth0"). Empty for any other family.
    [[nodiscard]] std::string numeric() const;

    [[nodiscard]] const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    [[nodiscard]] socklen_t size() const { return size_; }
    /// For accept4 and getsockname.
    sockaddr* writable_data() { return reinterpret_cast<sockaddr*>(&storage_); }
    socklen_t* writable_size() { return &size_; }

  private:
    SocketAddress(const void* name, socklen_t size);

    sockaddr_storage storage_{};
    socklen_t size_ = sizeof(sockaddr_storage);
};

/// Whom a numeric address belongs to, for limits per source: the address itself, and of IPv6 the network of 64 bits
/// ("2001:db8:0:7::/64"), because a host has as many addresses there as it likes. Link-local ones stay whole: all hosts
/// of a link share that network.
std::string source_of(const std::string& numeric);

}  // namespace muster
