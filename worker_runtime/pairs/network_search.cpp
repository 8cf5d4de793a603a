#include "worker_runtime/pairs/network_search.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <utility>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/pairs/pairing.h"
#include "worker_runtime/pairs/shared_networks.h"

namespace muster::runtime {

namespace {

constexpr std::size_t networks_max = 8;
constexpr Duration time_max = 20s;
/// So many tests that fail, while none passes, show that the network is none between hosts.
constexpr std::size_t conclusive = 3;

/// The search in one network. Nodes are numbered anew, as Pairing wants them.
class NetworkSearch {
  public:
    NetworkSearch(PairRounds& rounds, const SharedNetwork& network) : rounds_(rounds), network_(network) {}

    Result<std::string> run(Instant deadline) {
        Pairing pairing(static_cast<int>(network_.nodes.size()), std::random_device()());
        for (auto pairs = pairing.next_round(); !pairs.empty(); pairs = pairing.next_round()) {
            if (std::chrono::steady_clock::now() >= deadline)
                return Error{Errc::timed_out, cat("the test of networks took longer than ", describe(time_max))};
            if (auto tested = test(pairing, pairs); !tested) return tested.error();
            const auto failed_count = static_cast<std::size_t>(pairing.round_count()) * pairs.size();
            if (pairing.groups().empty() && failed_count >= conclusive) return record({});
        }
        std::string records;
        for (const int node : pairing.bad_nodes()) records += record({node});
        for (const auto& [a, b] : pairing.bad_paths()) records += record({a, b});
        const auto groups = pairing.groups();
        for (std::size_t i = 1; i < groups.size(); ++i) records += record(groups[i]);
        return records;
    }

  private:
    [[nodiscard]] int rank(int node) const { return network_.nodes[static_cast<std::size_t>(node)]; }

    Result<void> test(Pairing& pairing, const std::vector<NodePair>& pairs) {
        std::vector<NodeGroup> ranks;
        for (const auto& [a, b] : pairs) ranks.push_back({rank(a), rank(b)});
        const auto results = rounds_.test(ranks, network_.name);
        if (!results) return results.error();
        if (!rounds_.silent().empty())
            return Error{Errc::timed_out, cat("rank ", *rounds_.silent().begin(), " did not answer")};
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            const auto& [passed, why] = std::pair((*results)[i].passed, (*results)[i].why);
            pairing.told(pairs[i], passed);
            if (!passed) why_[pairs[i].first] = why_[pairs[i].second] = why;
        }
        return {};
    }

    /// Without nodes: no two of them connect.
    [[nodiscard]] std::string record(const NodeGroup& nodes) const {
        NodeGroup ranks;
        for (const int node : nodes) ranks.push_back(rank(node));
        const auto why = why_.find(nodes.empty() ? 0 : nodes.front());
        return cat("network\tname=", printable_line(network_.name), "\tranks=", write_groups({ranks}),
                   "\twhy=", why != why_.end() ? printable_line(why->second) : "", '\n');
    }

    PairRounds& rounds_;
    const SharedNetwork& network_;
    std::map<int, std::string> why_;
};

}  // namespace

std::string search_networks(PairRounds& rounds, const std::vector<std::string>& by_node, const NodeGroup& nodes) {
    std::vector<std::string> tested(by_node.size());
    for (const int node : nodes) tested[static_cast<std::size_t>(node)] = by_node[static_cast<std::size_t>(node)];
    const auto networks = shared_networks(tested);
    const auto deadline = std::chrono::steady_clock::now() + time_max;
    std::string records;
    std::string why = cat("only ", networks_max, " are tested");
    std::size_t done = 0;
    for (; done < std::min(networks_max, networks.size()); ++done) {
        auto found = NetworkSearch(rounds, networks[done]).run(deadline);
        if (!found) {
            why = found.error().context;
            break;
        }
        records += *found;
    }
    if (done < networks.size())
        records += cat("untested-networks\tfirst=", printable_line(networks[done].name),
                       "\tcount=", networks.size() - done, "\twhy=", printable_line(why), '\n');
    return records;
}

}  // namespace muster::runtime
