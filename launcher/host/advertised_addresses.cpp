#include "launcher/host/advertised_addresses.h"

#include <sys/socket.h>

#include <algorithm>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::launcher {

namespace {

/// The kernel's source address towards `address`. connect() on a UDP socket sends nothing.
std::string source_towards(const std::string& address) {
    constexpr std::uint16_t any_port = 9;
    const auto name = SocketAddress::from_numeric(address, any_port);
    if (!name) return {};
    const FileDescriptor socket(::socket(name->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid() || ::connect(socket.get(), name->data(), name->size()) != 0) return {};
    return SocketAddress::local_of(socket.get()).numeric();
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

std::vector<std::string> advertised_addresses(const LaunchConfig& config,
                                              const std::vector<std::string>& endpoint_addresses) {
    const auto own = own_addresses();
    const bool is_alone = config.nodes_max == 1 && config.spares == 0;
    if (!config.local_address.empty() && !is_alone) return {config.local_address};
    // A name that means loopback here may mean this host elsewhere (Debian's 127.0.1.1), so only a number or localhost
    // counts where other nodes may come.
    if (is_alone || is_loopback(config.endpoint.host)) {
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
    if (best.size() > native::addresses_max) best.resize(native::addresses_max);
    return best;
}

}  // namespace muster::launcher
