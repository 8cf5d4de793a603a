// Whether the firewall of this node can accept connections of the job's other nodes.
//
// The look prints the rules as nft or iptables list them, a line a record. A chain is named only if it surely drops
// such a connection: what its rules do not accept is dropped, and each rule that accepts, also in a chain that it jumps
// to, is for something else: connections that are open already, loopback, other protocols, or ports that no rank uses.
// A rule that is not understood may accept peers, and then nothing is named.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Words = std::vector<std::string_view>;

struct PortRange {
    std::int64_t first = 32768, last = 60999;  // the kernel's default
};

struct Chain {
    bool takes_input = false;
    bool drops_rest = false;
    std::vector<std::string_view> rules;
};

/// By family, table and name: "inet filter input".
using Chains = std::map<std::string, Chain, std::less<>>;

Words words_of(std::string_view line) {
    auto words = split(line, ' ');
    std::erase_if(words, [](std::string_view word) { return word.empty() || word == "counter"; });
    return words;
}

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// "drop", "reject with icmpx admin-prohibited", "-j DROP".
bool drops_everything(const Words& words) {
    const bool is_jump = words.size() > 1 && words[0] == "-j";
    const auto verdict = is_jump ? words[1] : words[0];
    return verdict == "drop" || verdict == "reject" || (is_jump && (verdict == "DROP" || verdict == "REJECT"));
}

/// "-P INPUT DROP", "-A INPUT -i lo -j ACCEPT".
void read_iptables_line(std::string_view line, const Words& words, Chains& chains) {
    auto& chain = chains[cat("ip filter ", words[1])];
    chain.takes_input = words[1] == "INPUT";
    if (words[0] == "-P" && words.size() > 2) chain.drops_rest |= words[2] == "DROP";
    if (words[0] == "-A") chain.rules.push_back(line.substr(line.find(words[1]) + words[1].size()));
}

Chains read_rules(const Look& look) {
    Chains chains;
    std::string table;
    std::vector<Chain*> blocks;  // a chain, or null for a table or a set
    for (const auto& record : look.records) {
        const auto line = trim(record.name);
        const auto words = words_of(line);
        if (words.size() > 1 && (words[0] == "-P" || words[0] == "-N" || words[0] == "-A")) {
            read_iptables_line(line, words, chains);
        } else if (line == "}") {
            if (!blocks.empty()) blocks.pop_back();
        } else if (line.ends_with(" {")) {
            const bool is_chain = words[0] == "chain" && words.size() > 2;
            if (words[0] == "table" && words.size() > 3) table = cat(words[1], ' ', words[2]);
            blocks.push_back(is_chain ? &chains[cat(table, ' ', words[1])] : nullptr);
        } else if (!blocks.empty() && blocks.back() != nullptr && line.starts_with("type ")) {
            blocks.back()->takes_input =
                has(line, "type filter hook input") && (table.starts_with("ip ") || table.starts_with("inet "));
            blocks.back()->drops_rest |= has(line, "policy drop");
        } else if (!blocks.empty() && blocks.back() != nullptr && !words.empty()) {
            blocks.back()->rules.push_back(line);
        }
    }
    for (auto& [name, chain] : chains)
        for (const auto rule : chain.rules)
            if (const auto words = words_of(rule); !words.empty()) chain.drops_rest |= drops_everything(words);
    return chains;
}

/// Of the words behind "dport": "22", "{ 22, 8000-9000 }", "22,80". True if none of them is in the range; false if one
/// is not a number.
bool are_other_ports(const Words& words, std::size_t at, PortRange range) {
    const bool is_set = at < words.size() && words[at] == "{";
    for (std::size_t i = at + (is_set ? 1 : 0); i < words.size() && words[i] != "}"; ++i) {
        for (const auto port : split(words[i], ',')) {
            if (port.empty()) continue;
            std::int64_t first = 0, last = 0;
            const auto dash = port.find_first_of("-:");
            if (!parse_number(port.substr(0, dash), first)) return false;
            last = first;
            if (dash != std::string_view::npos && !parse_number(port.substr(dash + 1), last)) return false;
            if (first <= range.last && last >= range.first) return false;
        }
        if (!is_set) return true;
    }
    return is_set;
}

/// True if the rule surely does not match a new TCP connection of a peer to a port of a rank.
bool is_for_others(std::string_view rule, const Words& words, PortRange range) {
    if (has(rule, "!")) return false;
    if ((has(rule, "established") || has(rule, "ESTABLISHED")) && !has(rule, "new") && !has(rule, "NEW")) return true;
    if ((has(rule, "icmp") || has(rule, "udp")) && !has(rule, "tcp")) return true;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const auto next = words[i + 1];
        if ((words[i] == "iif" || words[i] == "iifname" || words[i] == "-i") && (next == "lo" || next == "\"lo\""))
            return true;
        if (words[i] == "dport" || words[i] == "--dport" || words[i] == "--dports")
            return are_other_ports(words, i + 1, range);
    }
    return false;
}

class Peers {
  public:
    Peers(const Chains& chains, PortRange range) : chains_(chains), range_(range) {}

    /// False only if no rule of the chain, and of those that it jumps to, can accept a peer.
    bool may_pass(const std::string& name) {
        const auto found = chains_.find(name);
        if (found == chains_.end() || !visited_.insert(name).second) return false;
        const auto table = name.substr(0, name.rfind(' ') + 1);
        return std::ranges::any_of(found->second.rules, [&](std::string_view rule) {
            const auto words = words_of(rule);
            if (is_for_others(rule, words, range_)) return false;
            for (std::size_t i = 0; i < words.size(); ++i) {
                const bool jumps = words[i] == "jump" || words[i] == "goto" || words[i] == "-j" || words[i] == "-g";
                if (jumps && i + 1 < words.size() && may_pass(cat(table, words[i + 1]))) return true;
                constexpr std::array accepts{"accept", "ACCEPT", "queue", "NFQUEUE", "vmap"};
                if (std::ranges::find(accepts, words[i]) != accepts.end()) return true;
            }
            return false;
        });
    }

  private:
    const Chains& chains_;
    const PortRange range_;
    std::set<std::string> visited_;
};

std::vector<Measured> firewall(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("firewall");
    if (const auto* unreadable = look.first("unreadable"))
        return {{Level::info, "the rules of the firewall", cat("could not look: ", unreadable->text("text")),
                 "a rule that accepts the job's other nodes", "run muster doctor as root"}};
    if (look.state != Look::State::done) return {};
    PortRange range;
    if (const auto* ports = facts.look("network").first("ports"))
        range = {ports->number("first").value_or(range.first), ports->number("last").value_or(range.last)};
    const auto chains = read_rules(look);
    std::vector<Measured> found;
    for (const auto& [name, chain] : chains)
        if (chain.takes_input && chain.drops_rest && !Peers(chains, range).may_pass(name))
            found.push_back({Level::warning, cat("the firewall's chain ", name),
                             cat("accepts no new connection on the ports of ranks, ", range.first, " to ", range.last),
                             "a rule that accepts the job's other nodes",
                             name.starts_with("ip filter INPUT")
                                 ? "iptables -I INPUT -s NETWORK -j ACCEPT, with the network of the job's nodes"
                                 : cat("nft insert rule ", name, " ip saddr NETWORK accept, with the network of the ",
                                       "job's nodes")});
    return found;
}

}  // namespace

std::vector<Check> firewall_checks() {
    return {
        {"firewall", "firewall",
         "Ranks listen on ports that the kernel chooses; nodes that drop connections to them do not meet.",
         "nft list ruleset; accept the network of the job's nodes", firewall},
    };
}

}  // namespace muster::agent
