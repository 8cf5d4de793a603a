#include "agent/supervision/store_candidates.h"

#include <algorithm>

namespace muster::agent {

namespace {

std::string with_zone_of(const std::string& address, const std::string& daemon_address) {
    const auto zone = daemon_address.find('%');
    if (!address.starts_with("fe80:") || zone == std::string::npos) return address;
    return address.substr(0, address.find('%')) + daemon_address.substr(zone);
}

}  // namespace

std::vector<std::string> store_candidates(const std::vector<std::string>& addresses,
                                          const std::vector<std::string>& own_addresses,
                                          const std::string& daemon_address) {
    const auto is_own = [&](const auto& address) {
        return std::find(own_addresses.begin(), own_addresses.end(), address) != own_addresses.end();
    };
    auto candidates = addresses;
    if (!std::all_of(addresses.begin(), addresses.end(), is_own)) std::erase_if(candidates, is_own);
    for (auto& address : candidates) address = with_zone_of(address, daemon_address);
    return candidates;
}

}  // namespace muster::agent
