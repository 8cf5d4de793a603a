#include "launcher/advertised_addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "launcher/environment_probe.h"

namespace muster::launcher {

namespace {

template <class Name>
bool connect_to(int fd, const Name& name) {
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
}

/// The local address that the kernel would choose towards `address`: connecting a UDP socket sends nothing.
std::string source_towards(const std::string& address) {
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    v4.sin_family = AF_INET;
    v6.sin6_family = AF_INET6;
    v4.sin_port = v6.sin6_port = htons(9);
    const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
    if (!is_v4 && ::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) != 1) return {};
    const int fd = ::socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {};
    std::array<char, INET6_ADDRSTRLEN> text{};
    bool known = is_v4 ? connect_to(fd, v4) : connect_to(fd, v6);
    socklen_t size = is_v4 ? sizeof v4 : sizeof v6;
    known = known &&
            ::getsockname(fd, is_v4 ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6), &size) == 0;
    known =
        known && ::inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? static_cast<const void*>(&v4.sin_addr) : &v6.sin6_addr,
                             text.data(), text.size()) != nullptr;
    ::close(fd);
    return known ? std::string(text.data()) : std::string{};
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

std::vector<std::string> advertised_addresses(const LaunchConfig& config,
                                              const std::vector<std::string>& endpoint_addresses) {
    if (!config.local_address.empty()) return {config.local_address};
    const auto own = own_addresses();
    if (is_loopback(config.endpoint.host)) {
        const bool v6 = config.endpoint.host == "::1" || !contains(own, "127.0.0.1");
        return {v6 ? "::1" : "127.0.0.1"};
    }
    std::vector<std::string> best;
    const auto add = [&](const std::string& address) {
        if (!address.empty() && !is_loopback(address) && !contains(best, address)) best.push_back(address);
    };
    for (const auto& address : endpoint_addresses) add(source_towards(address));
    for (const auto& address : endpoint_addresses)
        if (contains(own, address)) add(address);
    for (const auto& address : own) add(address);
    if (best.empty()) best.push_back("127.0.0.1");
    return best;
}

}  // namespace muster::launcher
