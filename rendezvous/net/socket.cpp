#include "rendezvous/net/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace muster::rendezvous {

namespace {

constexpr int keepalive_idle_s = 30;
constexpr int keepalive_interval_s = 10;
constexpr int keepalive_probes = 6;

}  // namespace

SocketAddress SocketAddress::any_v4() {
    SocketAddress address;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    std::memcpy(&address.storage_, &any, sizeof any);
    address.size_ = sizeof any;
    return address;
}

SocketAddress SocketAddress::any_v6() {
    SocketAddress address;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    std::memcpy(&address.storage_, &any, sizeof any);
    address.size_ = sizeof any;
    return address;
}

SocketAddress SocketAddress::from(const sockaddr* data, socklen_t size) {
    SocketAddress address;
    address.size_ = std::min<socklen_t>(size, sizeof address.storage_);
    std::memcpy(&address.storage_, data, address.size_);
    return address;
}

SocketAddress SocketAddress::local_of(int fd) {
    SocketAddress address;
    ::getsockname(fd, address.writable_data(), address.writable_size());
    return address;
}

bool SocketAddress::is_any() const {
    if (family() == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
    return reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr == INADDR_ANY;
}

std::uint16_t SocketAddress::port() const {
    // The port lies at the same place in both families.
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
    reinterpret_cast<sockaddr_in&>(storage_).sin_port = htons(port);
}

std::string SocketAddress::numeric() const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (family() == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&v6))
            ::inet_ntop(AF_INET, &v6.s6_addr[12], text.data(), text.size());
        else
            ::inet_ntop(AF_INET6, &v6, text.data(), text.size());
    } else {
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr, text.data(), text.size());
    }
    return text.data();
}

void set_option(int fd, int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
}

void tune_stream(int fd, Duration silence_max) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, keepalive_interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(silence_max).count();
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds));
}

void tune_thin_stream(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

}  // namespace muster::rendezvous
