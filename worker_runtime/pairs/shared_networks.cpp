#include "worker_runtime/pairs/shared_networks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

struct Interface {
    std::string address;
    int mtu = 0;  // 0: not known
};

/// By the network's name: the interface there.
std::map<std::string, Interface, std::less<>> interfaces_of(std::string_view networks) {
    std::map<std::string, Interface, std::less<>> found;
    for (const auto word : split(networks, ' ')) {
        const auto equals = word.find('=');
        if (equals == std::string_view::npos) continue;
        const auto parts = split(word.substr(equals + 1), ',');
        Interface interface { .address = std::string(parts.front()) };
        if (parts.size() < 2 || !parse_number(parts[1], interface.mtu)) interface.mtu = 0;
        found.emplace(word.substr(0, equals), std::move(interface));
    }
    return found;
}

struct Network {
    NodeGroup nodes;
    std::set<std::string> addresses;
    std::map<int, NodeGroup> by_mtu;
};

/// By name, those between hosts.
std::map<std::string, Network> networks_of(const std::vector<std::string>& by_node) {
    std::map<std::string, Network> found;
    for (std::size_t i = 0; i < by_node.size(); ++i)
        for (const auto& [name, interface] : interfaces_of(by_node[i])) {
            auto& network = found[name];
            const auto node = static_cast<int>(i);
            network.nodes.push_back(node);
            network.addresses.insert(interface.address);
            if (interface.mtu > 0) network.by_mtu[interface.mtu].push_back(node);
        }
    std::erase_if(found, [](const auto& one) {
        const auto node_count = one.second.nodes.size();
        return node_count < 2 || 2 * one.second.addresses.size() <= node_count;
    });
    return found;
}

}  // namespace

std::vector<SharedNetwork> shared_networks(const std::vector<std::string>& by_node) {
    std::vector<SharedNetwork> found;
    std::vector<int> count(by_node.size());
    for (auto& [name, network] : networks_of(by_node)) {
        for (const int node : network.nodes) ++count[static_cast<std::size_t>(node)];
        found.push_back({name, network.nodes});
    }
    if (std::ranges::all_of(count, [](int networks) { return networks < 2; })) return {};
    return found;
}

std::vector<MtuNodes> unlike_mtus(const std::vector<std::string>& by_node) {
    std::vector<MtuNodes> found;
    for (const auto& [name, network] : networks_of(by_node))
        if (network.by_mtu.size() > 1)
            for (const auto& [mtu, nodes] : network.by_mtu) found.push_back({name, mtu, nodes});
    return found;
}

std::string address_in(std::string_view networks, std::string_view name) {
    const auto all = interfaces_of(networks);
    const auto found = all.find(name);
    return found != all.end() ? found->second.address : "";
}

}  // namespace muster::runtime
