#include "worker_runtime/cpu/interface_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text.h"

namespace muster::runtime {

namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
    char host[NI_MAXHOST] = {};
    return ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

bool matches(std::string_view interface, std::string_view pattern) {
    if (pattern.starts_with('=')) return interface == pattern.substr(1);
    return !pattern.empty() && interface.starts_with(pattern);
}

}  // namespace

Result<std::string> address_towards(const std::string& remote) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (::getaddrinfo(remote.c_str(), "9", &hints, &found) != 0) {
        return Error{Errc::invalid_argument, cat(remote, " is no numeric address")};
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    const FileDescriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    // Connecting a datagram socket looks up the route and sends nothing.
    if (!socket.valid() || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
        return error_from_errno(errno, cat("find the way to ", remote));
    }
    return numeric(reinterpret_cast<const sockaddr*>(&local), length);
}

Result<std::string> address_of_interface(std::string_view names, int family, const std::string& preferred) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return error_from_errno(errno, "list this host's interfaces");
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
    std::vector<std::string> there;
    std::string same_family;
    std::string other_family;
    for (const auto pattern : split(names, ',')) {
        for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
            if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
            const int its_family = one->ifa_addr->sa_family;
            if (its_family != AF_INET && its_family != AF_INET6) continue;
            if (std::find(there.begin(), there.end(), one->ifa_name) == there.end()) there.emplace_back(one->ifa_name);
            if (!matches(one->ifa_name, trim(pattern))) continue;
            const auto address =
                numeric(one->ifa_addr, its_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
            if (address == preferred) return address;
            auto& first = its_family == family ? same_family : other_family;
            if (first.empty()) first = address;
        }
    }
    if (!same_family.empty()) return same_family;
    if (!other_family.empty()) return other_family;
    return Error{Errc::not_found,
                 cat("no interface that is up matches \"", names, "\"; there are: ", join(there, ", "))};
}

}  // namespace muster::runtime
