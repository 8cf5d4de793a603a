// What the nodes found out about each other (worker_runtime/pairs).
#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "agent/doctor/check_table.h"
#include "agent/doctor/node_records.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

/// "gpu07 (rank 3)".
std::string node_of(const Look& look, const std::string& rank) {
    for (const auto* node : look.all("node"))
        if (node->text("rank") == rank) return cat(node->text("host"), " (rank ", rank, ")");
    return cat("rank ", rank);
}

/// "n0, n1, n2 and 5 more".
std::string list_of(std::vector<std::string> names) {
    constexpr std::size_t names_max = 8;
    const auto count = names.size();
    if (count > names_max) names.resize(names_max);
    return cat(join(names, ", "), count > names_max ? cat(" and ", count - names_max, " more") : "");
}

/// Of "0-3-5", the ranks of a record.
std::string nodes_of(const Look& look, const std::string& ranks) {
    std::vector<std::string> nodes;
    for (const auto rank : split(ranks, '-')) nodes.push_back(node_of(look, std::string(rank)));
    return list_of(std::move(nodes));
}

Found with_verdict(const DoctorFacts& facts, std::string_view verdict, Level level) {
    const auto& look = facts.look("nodes");
    Found found;
    for (const auto* node : look.all("node"))
        if (node->text("verdict") == verdict)
            found.push_back(
                {level, node_of(look, node->text("rank")), node->text("why"), "connections to other nodes"});
    return found;
}

Found bad_nodes(const DoctorFacts& facts, const DoctorLimits&) {
    return with_verdict(facts, "bad", Level::critical);
}

Found undecided_nodes(const DoctorFacts& facts, const DoctorLimits&) {
    return with_verdict(facts, "undecided", Level::unknown);
}

Found other_builds(const DoctorFacts& facts, const DoctorLimits&) {
    return with_verdict(facts, "unread", Level::unknown);
}

Found paths(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("nodes");
    Found found;
    for (const auto* path : look.all("path"))
        found.push_back(
            {Level::warning,
             cat("the path between ", node_of(look, path->text("a")), " and ", node_of(look, path->text("b"))),
             path->text("why"), "as each of them has to other nodes"});
    return found;
}

/// Why pairs of two groups failed, by `groups` of their ranks: best a pair that was not only slow.
std::string why_apart(const Look& look, const std::map<std::string, std::int64_t>& groups) {
    std::string why;
    for (const auto* pair : look.all("pair")) {
        const auto one = groups.find(pair->text("a")), two = groups.find(pair->text("b"));
        const bool is_between = one != groups.end() && two != groups.end() && one->second != two->second;
        if (!is_between || pair->text("passed") == "1") continue;
        if (why.empty() || is_slow(why)) why = pair->text("why");
    }
    return why;
}

/// One finding for all groups: no single node is bad.
Found groups_apart(const DoctorFacts& facts, const DoctorLimits&) {
    constexpr std::size_t groups_max = 8;
    const auto& look = facts.look("nodes");
    std::map<std::int64_t, std::vector<std::string>> groups;
    std::map<std::string, std::int64_t> group_of;  // by rank
    for (const auto* node : look.all("node")) {
        const auto& verdict = node->text("verdict");
        if (verdict != "passed" && verdict != "apart") continue;
        const auto group = node->number("group").value_or(0);
        groups[group].push_back(node->text("host"));
        group_of[node->text("rank")] = group;
    }
    if (groups.size() < 2) return {};
    std::vector<std::string> parts;
    for (auto& [number, hosts] : groups) {
        if (parts.size() == groups_max) {
            parts.push_back(cat("and ", groups.size() - groups_max, " more groups"));
            break;
        }
        parts.push_back(cat("nodes ", list_of(std::move(hosts))));
    }
    const auto why = why_apart(look, group_of);
    return {{Level::critical, join(parts, "; "),
             cat(is_slow(why) ? "reach each other only slowly: " : "do not reach each other: ", why),
             "connections between all nodes"}};
}

/// Faults that no pair shows. That many nodes together are slower than pairs may be all that the network is made for.
Found failed_groups(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("nodes");
    Found found;
    for (const auto* untested : look.all("untested"))
        found.push_back({Level::unknown, "all nodes together", untested->text("why"), "as in pairs"});
    for (const auto* group : look.all("together")) {
        const auto &ranks = group->text("ranks"), &why = group->text("why");
        const bool is_capacity = ranks.find('-') != std::string::npos && is_slow(why);
        found.push_back({is_capacity ? Level::info : Level::warning, nodes_of(look, ranks),
                         cat("in a group of ", group->text("of"), " nodes: ", why),
                         "as in the pairs that were tested"});
    }
    return found;
}

/// Addresses that lead nowhere, although the nodes reach each other by others.
Found networks(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("nodes");
    Found found;
    for (const auto* network : look.all("network")) {
        const auto &name = network->text("name"), &ranks = network->text("ranks"), &why = network->text("why");
        if (ranks.empty())
            // One inside each host, as of virtual machines, looks the same; but there nobody connects.
            found.push_back({why.starts_with("no connection") ? Level::info : Level::warning, name,
                             cat("between no two nodes: ", why), "connections, if jobs use it"});
        else
            found.push_back({Level::warning, cat(nodes_of(look, ranks), " in network ", name), why,
                             "connections, as other nodes have there"});
    }
    for (const auto* open : look.all("untested-networks"))
        found.push_back({Level::unknown, cat(open->text("count"), " networks from ", open->text("first"), " on"),
                         open->text("why"), "a test of each network that several nodes share"});
    return found;
}

Found missing_nodes(const DoctorFacts& facts, const DoctorLimits&) {
    const auto* nodes = facts.look("nodes").first("nodes");
    if (nodes == nullptr) return {};
    const auto expected = nodes->number("expected").value_or(0), came = nodes->number("came").value_or(0);
    if (came >= expected) return {};
    return {{Level::unknown, "nodes that came", cat(came), cat(expected)}};
}

Found clocks(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("nodes");
    Found found;
    for (const auto* clock : look.all("clock")) {
        const auto ahead = clock->number("ahead-ms").value_or(0);
        const auto apart = muster::describe(std::chrono::milliseconds(ahead < 0 ? -ahead : ahead));
        const auto within =
            cat("within ", muster::describe(std::chrono::milliseconds(clock->number("within-ms").value_or(0))), " of ");
        if (const auto& two = clock->text("ranks"); !two.empty())
            found.push_back({Level::warning, nodes_of(look, two),
                             cat("the clock of the second is ", apart, ahead < 0 ? " behind" : " ahead"),
                             cat(within, "each other; of two, nothing shows which one is right")});
        else
            found.push_back({Level::warning, node_of(look, clock->text("rank")),
                             cat(apart, ahead < 0 ? " behind" : " ahead"), cat(within, "the other nodes")});
    }
    return found;
}

/// TCP lowers its packets to the smaller MTU; NCCL over RoCE does not (nccl#1524).
Found mtus(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("nodes");
    struct Network {
        std::vector<const FactRecord*> sizes;
        const FactRecord* usual = nullptr;
        std::size_t node_count = 0, most = 0;
    };
    std::map<std::string, Network> networks;
    for (const auto* size : look.all("mtu")) {
        auto& network = networks[size->text("network")];
        const auto count = split(size->text("ranks"), '-').size();
        network.sizes.push_back(size);
        network.node_count += count;
        if (count > network.most) network.most = count, network.usual = size;
    }
    Found found;
    for (const auto& [name, network] : networks)
        for (const auto* size : network.sizes) {
            const bool has_usual = 2 * network.most > network.node_count;
            if (has_usual && size == network.usual) continue;
            found.push_back({Level::warning, cat(nodes_of(look, size->text("ranks")), " in network ", name),
                             cat("MTU ", size->text("mtu")),
                             has_usual ? cat(network.usual->text("mtu"), ", as ", network.most, " of ",
                                             network.node_count, " nodes have there")
                                       : "the same on all"});
        }
    return found;
}

std::string range(std::int64_t least, std::int64_t most) {
    return least == most ? cat(least) : cat(least, " to ", most);
}

/// By the site's own limit: where all links are equally slow, none differs from what is usual.
Found slow_links(const Look& look, std::int64_t least) {
    std::map<std::pair<std::string, std::string>, std::int64_t> best;  // by two ranks: they may be tested several times
    for (const auto* pair : look.all("pair"))
        if (pair->text("passed") == "1") {
            auto& speed = best[{pair->text("a"), pair->text("b")}];
            speed = std::max(speed, pair->number("mbytes-per-s").value_or(0));
        }
    const auto is_slow = [least](const auto& one) { return one.second < least; };
    const auto count = std::ranges::count_if(best, is_slow);
    if (count == 0) return {};
    const auto& [ranks, speed] = *std::ranges::min_element(best, {}, [](const auto& one) { return one.second; });
    return {{Level::warning, cat("the link between ", node_of(look, ranks.first), " and ", node_of(look, ranks.second)),
             cat(speed, " MB/s; ", count, " of ", best.size(), " tested links have less"),
             cat("at least ", least, " MB/s")}};
}

/// Facts to compare, where something passed.
Found links(const DoctorFacts& facts, const DoctorLimits& limits) {
    bool sees_losses = true;
    std::int64_t count = 0, slowest = 0, fastest = 0, latency_min = 0, latency_max = 0;
    for (const auto* pair : facts.look("nodes").all("pair")) {
        if (pair->text("passed") != "1") continue;
        const auto speed = pair->number("mbytes-per-s").value_or(0), latency = pair->number("latency-us").value_or(0);
        slowest = count == 0 ? speed : std::min(slowest, speed);
        latency_min = count == 0 ? latency : std::min(latency_min, latency);
        fastest = std::max(fastest, speed);
        latency_max = std::max(latency_max, latency);
        sees_losses = sees_losses && pair->text("sees-losses") != "0";
        ++count;
    }
    if (count == 0) return {};
    auto found = slow_links(facts.look("nodes"), limits.of("link-mbytes"));
    found.push_back({Level::info, cat(count, count == 1 ? " pair" : " pairs"),
                     cat(range(slowest, fastest), " MB/s, ", range(latency_min, latency_max), " us",
                         sees_losses ? "" : "; lost packets: could not look, the kernel does not tell them"),
                     "the same on all links"});
    return found;
}

}  // namespace

std::vector<Check> pair_checks() {
    return {
        {"node-links", "nodes", "A job with this node does not start, hangs, or is as slow as this node.",
         "run muster doctor there; check its cable, MTU (ip link) and firewall (nft list ruleset)", bad_nodes},
        {"node-undecided", "nodes", "It stopped answering, or no node that works was left to test it.",
         "see whether it still answers; add a node that is known to be good, and test again", undecided_nodes},
        {"node-build", "nodes", "Its answers cannot be read, so nothing is known about its links.",
         "install the same build of muster on all nodes", other_builds},
        {"node-path", "nodes", "Jobs in which these two nodes are neighbours hang or are slow.",
         "check the switches, routes and firewalls between the two; test again then: nothing is known of larger groups",
         paths},
        {"nodes-apart", "nodes",
         "The network is cut or slow between these groups. A job with nodes of several groups does not start, hangs or "
         "is slow.",
         "check the switches, routes and firewalls between the groups; a job within one group works", groups_apart},
        {"nodes-together", "nodes",
         "A job with these nodes and several others hangs or is slow, although their pairs that were tested work.",
         "check limits of connections (nft list ruleset, dmesg | grep conntrack) and the switch between them",
         failed_groups},
        {"node-network", "nodes",
         "A job that uses this address hangs or does not start: NCCL opens connections by each interface.",
         "check the interface's cable, VLAN and MTU (ip -s link; ping -M do -s 1472), or leave it out: "
         "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME",
         networks},
        {"node-clock", "nodes",
         "Log lines of several nodes stand in a wrong order, and certificates may count as not valid.",
         "start the host's time service (chronyc tracking, timedatectl)", clocks},
        {"node-mtu", "nodes",
         "RoCE fails between two MTUs; TCP adapts, unless a switch or tunnel on the way drops full packets silently.",
         "ip link set NAME mtu N, the same on all nodes and switches", mtus},
        {"nodes-missing", "nodes", "Nothing is known about a node that does not come.",
         "see its own output: can it reach the endpoint? --wait SECONDS waits longer", missing_nodes},
        {"links", "nodes", "The slowest link decides the speed of a collective.",
         "compare with the network's data sheet", links},
    };
}

}  // namespace muster::agent
