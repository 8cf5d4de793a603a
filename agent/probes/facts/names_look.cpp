#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "agent/probes/facts/fact_line.h"
#include "agent/probes/facts/looks.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

/// Whether the kernel has a route. connect() on a UDP socket sends nothing. Empty: it has one.
std::string route_trouble(const SocketAddress& address) {
    const FileDescriptor socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return std::strerror(errno);
    return ::connect(socket.get(), address.data(), address.size()) == 0 ? std::string() : std::strerror(errno);
}

}  // namespace

void look_at_names() {
    constexpr const char* discard_port = "9";
    for (const auto& own : list_own_addresses()) {
        if (own.is_loopback || !own.is_running || own.address.is_link_local()) continue;
        print_fact("other-address", {{"value", own.address.numeric()}});
        break;
    }
    const auto host = host_name();
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const auto before = std::chrono::steady_clock::now();
    const auto failed = ::getaddrinfo(host.c_str(), discard_port, &hints, &found);
    const auto took = std::chrono::steady_clock::now() - before;
    print_fact("name", {{"host", host},
                        {"ms", cat(std::chrono::duration_cast<std::chrono::milliseconds>(took).count())},
                        {"failure", failed != 0 ? ::gai_strerror(failed) : ""}});
    for (const auto* one = found; one != nullptr; one = one->ai_next) {
        const auto address = SocketAddress::from(one->ai_addr);
        if (!address || address->is_link_local()) continue;
        const auto trouble = route_trouble(*address);
        print_fact("address", {{"value", address->numeric()},
                               {"loopback", is_loopback(address->numeric()) ? "1" : "0"},
                               {"reachable", trouble.empty() ? "1" : "0"},
                               {"failure", trouble}});
    }
    if (found != nullptr) ::freeaddrinfo(found);
}

}  // namespace muster::agent
