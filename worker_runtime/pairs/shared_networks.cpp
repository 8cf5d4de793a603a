#include "worker_runtime/pairs/shared_networks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// By the network's name: the address there.
std::map<std::string, std::string, std::less<>> addresses_of(std::string_view networks) {
    std::map<std::string, std::string, std::less<>> found;
    for (const auto word : split(networks, ' '))
        if (const auto equals = word.find('='); equals != std::string_view::npos)
            found.emplace(word.substr(0, equals), word.substr(equals + 1));
    return found;
}

}  // namespace

std::vector<SharedNetwork> shared_networks(const std::vector<std::string>& by_node) {
    std::map<std::string, NodeGroup> nodes;
    std::map<std::string, std::set<std::string>> addresses;
    for (std::size_t node = 0; node < by_node.size(); ++node)
        for (const auto& [name, address] : addresses_of(by_node[node])) {
            nodes[name].push_back(static_cast<int>(node));
            addresses[name].insert(address);
        }
    std::vector<SharedNetwork> found;
    std::vector<int> count(by_node.size());
    for (auto& [name, members] : nodes) {
        if (members.size() < 2 || 2 * addresses[name].size() <= members.size()) continue;
        for (const int node : members) ++count[static_cast<std::size_t>(node)];
        found.push_back({name, std::move(members)});
    }
    if (std::ranges::all_of(count, [](int networks) { return networks < 2; })) return {};
    return found;
}

std::string address_in(std::string_view networks, std::string_view name) {
    const auto all = addresses_of(networks);
    const auto found = all.find(name);
    return found != all.end() ? found->second : "";
}

}  // namespace muster::runtime
