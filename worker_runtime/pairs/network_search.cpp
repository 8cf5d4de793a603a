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
    NetworkSearch(PairRounds& rounds, const SharedNetwork& network, Instant deadline)
        : rounds_(rounds), network_(network), deadline_(deadline) {}

    /// All together, and in pairs where that fails. What no pair shows is tested twice again, so that chance does not
    /// decide.
    Result<std::string> run() {
        const auto groups = GroupSearch(network_.nodes).next_round();
        if (groups.empty()) return search_pairs();
        if (auto failing = failing_of(groups); !failing || failing->empty()) return with_records(failing);
        if (auto found = search_pairs(); !found || !found->empty()) return found;
        if (auto again = failing_of(groups); !again || again->empty()) return with_records(again);
        return with_records(failing_of(groups));
    }

  private:
    using Failing = std::vector<std::pair<NodeGroup, std::string>>;  // and why

    Result<Failing> failing_of(const std::vector<NodeGroup>& ranks) {
        if (std::chrono::steady_clock::now() >= deadline_)
            return Error{Errc::timed_out, cat("the test of networks took longer than ", describe(time_max))};
        const auto results = MUSTER_TRY(rounds_.test(ranks, network_.name));
        if (!rounds_.silent().empty())
            return Error{Errc::timed_out, cat("rank ", *rounds_.silent().begin(), " did not answer")};
        Failing failing;
        for (std::size_t i = 0; i < ranks.size(); ++i)
            if (!results[i].passed) failing.emplace_back(ranks[i], results[i].why);
        return failing;
    }

    Result<std::string> search_pairs() {
        const auto size = network_.nodes.size();
        const auto needed = size == 2 ? std::size_t{2} : std::min(conclusive, size * (size - 1) / 2);
        Pairing pairing(static_cast<int>(size), std::random_device()());
        for (auto pairs = pairing.next_round(); !pairs.empty(); pairs = pairing.next_round()) {
            std::vector<NodeGroup> ranks;
            for (const auto& [a, b] : pairs) ranks.push_back({rank(a), rank(b)});
            const auto failing = MUSTER_TRY(failing_of(ranks));
            for (const auto& [pair, why] : failing) why_[pair] = why;
            for (std::size_t i = 0; i < pairs.size(); ++i)
                pairing.told(pairs[i],
                             std::ranges::find(failing, ranks[i], &Failing::value_type::first) == failing.end());
            const auto failed_count = static_cast<std::size_t>(pairing.round_count()) * pairs.size();
            if (pairing.groups().empty() && failed_count >= needed) return record({}, why_of({}));
        }
        std::string records;
        for (const int node : pairing.bad_nodes()) records += record({rank(node)}, why_of({rank(node)}));
        for (const auto& [a, b] : pairing.bad_paths())
            records += record({rank(a), rank(b)}, why_of({rank(a), rank(b)}));
        const auto groups = pairing.groups();
        for (std::size_t i = 1; i < groups.size(); ++i) {
            NodeGroup ranks;
            for (const int node : groups[i]) ranks.push_back(rank(node));
            records += record(ranks, why_of({ranks.front()}));
        }
        return records;
    }

    [[nodiscard]] int rank(int node) const { return network_.nodes[static_cast<std::size_t>(node)]; }

    /// Of a pair with all of these; best one that connects, which says more.
    [[nodiscard]] std::string why_of(const NodeGroup& ranks) const {
        std::string found;
        for (const auto& [pair, why] : why_) {
            const auto is_in = [&pair = pair](int rank) { return std::ranges::find(pair, rank) != pair.end(); };
            if (std::ranges::all_of(ranks, is_in) && (found.empty() || !why.starts_with(no_connection))) found = why;
        }
        return found;
    }

    /// Without ranks: no two of them reach each other.
    [[nodiscard]] std::string record(const NodeGroup& ranks, const std::string& why) const {
        return cat("network\tname=", printable_line(network_.name), "\tranks=", write_groups({ranks}),
                   "\twhy=", printable_line(why), '\n');
    }

    [[nodiscard]] Result<std::string> with_records(const Result<Failing>& failing) const {
        if (!failing) return failing.error();
        std::string records;
        for (const auto& [ranks, why] : *failing) records += record(ranks, why);
        return records;
    }

    PairRounds& rounds_;
    const SharedNetwork& network_;
    Instant deadline_;
    std::map<NodeGroup, std::string> why_;  // of the pairs that failed
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
        auto found = NetworkSearch(rounds, networks[done], deadline).run();
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
