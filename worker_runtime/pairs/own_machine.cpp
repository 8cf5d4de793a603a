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

/// Of each entry of a directory, those that are not empty, once each.
template <class Read>
std::string all_of(const char* directory, Read read) {
    std::set<std::string> found;
    std::error_code failure;
    for (std::filesystem::directory_iterator at(directory, failure), end; !failure && at != end; at.increment(failure))
        if (auto one = read(at->path().string()); !one.empty()) found.insert(std::move(one));
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
    const auto cards = all_of("/sys/class/net", [](const std::string& interface) {
        const auto vendor = first_line(interface + "/device/vendor"), device = first_line(interface + "/device/device");
        return vendor.empty() ? "" : cat(vendor, ':', device);
    });
    const auto gpus = all_of("/proc/driver/nvidia/gpus",
                             [](const std::string& gpu) { return value_of(read_file(gpu + "/information"), "Model"); });
    return printable_line(cat(value_of(read_file("/proc/cpuinfo"), "model name"), "; ", gpus, "; ", cards));
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
        const bool is_told = std::ranges::find(*told, address) != told->end();
        if (!is_told || network.empty() || !address_in(networks, network).empty()) continue;
        networks += cat(networks.empty() ? "" : " ", network, '=', address);
    }
    ::freeifaddrs(first);
    return networks;
}

}  // namespace muster::runtime
