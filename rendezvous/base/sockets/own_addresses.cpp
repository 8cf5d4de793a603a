#include "rendezvous/base/sockets/own_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/text/text.h"

namespace muster {

namespace {

/// Each that is a dead end costs whoever connects a quarter of a second.
constexpr std::size_t addresses_listed_max = 4;

}  // namespace

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

std::vector<OwnAddress> list_own_addresses() {
    std::vector<OwnAddress> found;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return found;
    for (const auto* entry = first; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
        if (const auto address = SocketAddress::from(entry->ifa_addr))
            found.push_back({.address = *address,
                             .interface = entry->ifa_name,
                             .is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                             .is_running = (entry->ifa_flags & IFF_RUNNING) != 0});
    }
    ::freeifaddrs(first);
    return found;
}

std::vector<OwnAddress> known_elsewhere(std::vector<OwnAddress> all) {
    std::erase_if(all, [](const auto& one) { return one.address.is_link_local(); });
    const auto is_local_v4 = [](const OwnAddress& one) { return one.address.numeric().starts_with("169.254."); };
    if (std::ranges::any_of(all, [&](const auto& one) { return !one.is_loopback && !is_local_v4(one); }))
        std::erase_if(all, is_local_v4);
    return all;
}

std::vector<std::string> own_addresses() {
    auto all = known_elsewhere(list_own_addresses());
    const auto place = [](const OwnAddress& one) { return one.is_loopback ? 2 : one.is_running ? 0 : 1; };
    std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
    std::vector<std::string> addresses;
    for (const auto& one : all) {
        auto address = one.address.numeric();
        if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
            addresses.push_back(std::move(address));
    }
    if (addresses.empty()) addresses.emplace_back("127.0.0.1");
    return addresses;
}

std::string address_list(const std::vector<std::string>& addresses) {
    const auto count = std::min(addresses.size(), addresses_listed_max);
    return join({addresses.begin(), addresses.begin() + static_cast<std::ptrdiff_t>(count)}, ",");
}

bool OwnAddresses::contains(const std::string& numeric) {
    constexpr Duration age_max = 5s;
    if (is_loopback(numeric)) return true;
    if (const auto now = std::chrono::steady_clock::now(); now - listed_at_ >= age_max) {
        listed_at_ = now;
        listed_ = {};
        for (const auto& own : list_own_addresses()) listed_.add(own.address.numeric());
    }
    return listed_.contains(numeric);
}

}  // namespace muster
