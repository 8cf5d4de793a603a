#include "rendezvous/base/sockets/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// "eth0" or "3" -> 3; 0 where there is no such interface.
std::uint32_t scope_of(const std::string& zone) {
    std::uint32_t number = 0;
    return parse_number(zone, number) ? number : ::if_nametoindex(zone.c_str());
}

/// 3 -> "eth0"; the number itself for an interface that is gone.
std::string zone_of(std::uint32_t scope) {
    std::array<char, IF_NAMESIZE> name{};
    return ::if_indextoname(scope, name.data()) != nullptr ? std::string(name.data()) : cat(scope);
}

}  // namespace

SocketAddress::SocketAddress(const void* name, socklen_t size) : size_(size) {
    std::memcpy(&storage_, name, size);
}

SocketAddress SocketAddress::any_v4() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    return {&any, sizeof any};
}

SocketAddress SocketAddress::any_v6() {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    return {&any, sizeof any};
}

std::optional<SocketAddress> SocketAddress::from(const sockaddr* address) {
    if (address->sa_family == AF_INET) return SocketAddress(address, sizeof(sockaddr_in));
    if (address->sa_family == AF_INET6) return SocketAddress(address, sizeof(sockaddr_in6));
    return std::nullopt;
}

std::optional<SocketAddress> SocketAddress::from_numeric(const std::string& address, std::uint16_t port) {
    sockaddr_in v4{};
    if (::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        return SocketAddress(&v4, sizeof v4);
    }
    const auto percent = address.find('%');
    sockaddr_in6 v6{};
    if (::inet_pton(AF_INET6, address.substr(0, percent).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    if (percent != std::string::npos) v6.sin6_scope_id = scope_of(address.substr(percent + 1));
    return SocketAddress(&v6, sizeof v6);
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

bool SocketAddress::is_link_local() const {
    return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
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
        if (const auto scope = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_scope_id;
            scope != 0 && is_link_local())
            return cat(text.data(), '%', zone_of(scope));
    } else if (family() == AF_INET) {
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage_).sin_addr, text.data(), text.size());
    }
    return text.data();
}

std::string source_of(const std::string& numeric) {
    in6_addr address{};
    if (::inet_pton(AF_INET6, numeric.c_str(), &address) != 1 || IN6_IS_ADDR_LINKLOCAL(&address)) return numeric;
    constexpr std::size_t network_bytes = 8;
    std::fill_n(address.s6_addr + network_bytes, sizeof address.s6_addr - network_bytes, std::uint8_t{0});
    char text[INET6_ADDRSTRLEN];
    return std::string(::inet_ntop(AF_INET6, &address, text, sizeof text)) + "/64";
}

}  // namespace muster
