#include "worker_runtime/pairs/own_machine.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/context/choices.h"
#include "worker_runtime/pairs/shared_networks.h"

namespace muster::runtime {

namespace {

/// The value of the first line "NAME : value".
std::string value_of(const std::string& text, std::string_view name) {
    for (const auto line : split(text, '\n'))
        if (line.starts_with(name))
            return std::string(trim(line.substr(std::min(line.find(':'), line.size() - 1) + 1)));
    return {};
}

/// Vendor and device of each network card and GPU, once each. The kernel knows them without their drivers, which may
/// hang.
std::string cards_and_gpus() {
    std::set<std::string> found;
    std::error_code failure;
    for (std::filesystem::directory_iterator at("/sys/bus/pci/devices", failure), end; !failure && at != end;
         at.increment(failure)) {
        const auto device = at->path().string(), kind = first_line(device + "/class");
        if (kind.starts_with("0x02") || kind.starts_with("0x03"))
            found.insert(cat(first_line(device + "/vendor"), ':', first_line(device + "/device")));
    }
    return join({found.begin(), found.end()}, ", ");
}

/// "10.2.0.0/24". Empty: the address stands alone.
std::string network_of(const sockaddr* address, const sockaddr* mask) {
    if (mask == nullptr || mask->sa_family != address->sa_family) return {};
    const bool is_v6 = address->sa_family == AF_INET6;
    const auto begin = is_v6 ? offsetof(sockaddr_in6, sin6_addr) : offsetof(sockaddr_in, sin_addr);
    const std::size_t length = is_v6 ? sizeof(in6_addr) : sizeof(in_addr);
    sockaddr_storage network{};
    std::memcpy(&network, address, begin + length);
    std::size_t bits = 0;
    for (auto at = begin; at < begin + length; ++at) {
        const auto kept = reinterpret_cast<const unsigned char*>(mask)[at];
        reinterpret_cast<unsigned char*>(&network)[at] &= kept;
        bits += static_cast<std::size_t>(std::popcount(kept));
    }
    if (bits == 8 * length) return {};
    return cat(SocketAddress::from(reinterpret_cast<const sockaddr*>(&network))->numeric(), '/', bits);
}

}  // namespace

std::string machine_type() {
    // All cards, and not the one that is used: a node that uses another one than its like should be compared with them.
    return printable_line(cat(value_of(read_file("/proc/cpuinfo"), "model name"), "; ", cards_and_gpus()));
}

std::string own_networks(const std::string& store_host) {
    const auto told = own_addresses_towards(store_host);
    std::string networks;
    if (!told) return networks;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return networks;
    for (const auto* entry = first; entry != nullptr; entry = entry->ifa_next) {
        const auto own = entry->ifa_addr != nullptr ? SocketAddress::from(entry->ifa_addr) : std::nullopt;
        if (!own || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
        const auto address = own->numeric(), network = network_of(entry->ifa_addr, entry->ifa_netmask);
        // An IPv4 address that an unused interface gave itself leads nowhere.
        const bool is_told = std::ranges::find(*told, address) != told->end() && !address.starts_with("169.254.");
        if (!is_told || network.empty() || !address_in(networks, network).empty()) continue;
        networks += cat(networks.empty() ? "" : " ", network, '=', address, ',',
                        first_line(cat("/sys/class/net/", entry->ifa_name, "/mtu")));
    }
    ::freeifaddrs(first);
    return networks;
}

}  // namespace muster::runtime
