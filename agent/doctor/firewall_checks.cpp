// Whether the firewall of this node can accept connections of the job's other nodes.
//
// The look prints the rules as nft or iptables list them, a line a record. A chain is named only if it surely drops
// such a connection: what its rules do not accept is dropped, and each rule that accepts, also in a chain that it jumps
// to, is for something else: connections that are open already, loopback, other protocols, or ports that no rank uses.
// A rule that is not understood may accept peers, and then nothing is named; that a look was in vain is information.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

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
    bool has_drop_policy = false;
    bool drops_rest = false;
    std::vector<std::string_view> rules;
};

/// By family, table and name: "inet filter input".
using Chains = std::map<std::string, Chain, std::less<>>;

template <std::size_t size>
bool is_one_of(const std::array<std::string_view, size>& these, std::string_view word) {
    return std::ranges::find(these, word) != these.end();
}

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

/// Where the word that begins at `at` ends: a quoted one behind its second quotation mark.
std::size_t end_of_word(std::string_view line, std::size_t at) {
    if (line[at] != '"') return std::min(line.find(' ', at), line.size());
    for (++at; at < line.size() && line[at] != '"'; ++at)
        if (line[at] == '\\') ++at;
    return std::min(at + 1, line.size());
}

/// Without counters and the texts of comments and log lines, which mean nothing. nft puts such texts in quotation
/// marks.
Words words_of(std::string_view line) {
    constexpr std::array<std::string_view, 3> before_text{"--comment", "--log-prefix", "--nflog-prefix"};
    Words words;
    for (std::size_t at = 0, end = 0; (at = line.find_first_not_of(' ', end)) != std::string_view::npos;) {
        end = end_of_word(line, at);
        const auto word = line.substr(at, end - at);
        if (!words.empty() && is_one_of(before_text, words.back()))
            words.pop_back();
        else
            words.push_back(word);
    }
    std::erase(words, "counter");
    return words;
}

/// "drop", "reject with icmpx admin-prohibited", "-j DROP".
bool drops_everything(const Words& words) {
    const bool is_jump = words.size() > 1 && words[0] == "-j";
    const auto verdict = is_jump ? words[1] : words[0];
    return verdict == "drop" || verdict == "reject" || (is_jump && (verdict == "DROP" || verdict == "REJECT"));
}

class RuleReader {
  public:
    Chains read(const Look& look) {
        for (const auto& record : look.records) read_line(trim(record.name));
        for (auto& [name, chain] : chains_) {
            chain.drops_rest = chain.has_drop_policy;
            for (const auto rule : chain.rules)
                if (const auto words = words_of(rule); !words.empty()) chain.drops_rest |= drops_everything(words);
        }
        return std::move(chains_);
    }

  private:
    void read_line(std::string_view line) {
        const auto words = words_of(line);
        if (words.size() > 1 && (words[0] == "-P" || words[0] == "-N" || words[0] == "-A")) {
            read_iptables(line, words);
        } else if (line == "}") {
            if (!blocks_.empty()) blocks_.pop_back();
        } else if (line.ends_with(" {") || has(line, " { # ")) {  // "table inet firewalld { # progname firewalld"
            open_block(words);
        } else if (blocks_.empty() || words.empty()) {
            return;
        } else if (blocks_.back() == nullptr) {
            is_dormant_ |= words[0] == "flags" && has(line, "dormant");
        } else if (words[0] == "type") {
            blocks_.back()->takes_input = !is_dormant_ && has(line, "type filter hook input") &&
                                          (table_.starts_with("ip ") || table_.starts_with("inet "));
            blocks_.back()->has_drop_policy = has(line, "policy drop");
        } else {
            blocks_.back()->rules.push_back(line);
        }
    }

    /// "-P INPUT DROP", "-A INPUT -i lo -j ACCEPT".
    void read_iptables(std::string_view line, const Words& words) {
        auto& chain = chains_[cat("ip filter ", words[1])];
        chain.takes_input = words[1] == "INPUT";
        if (words[0] == "-P" && words.size() > 2) chain.has_drop_policy = words[2] == "DROP";
        if (words[0] == "-A") chain.rules.push_back(line.substr(line.find(words[1]) + words[1].size()));
    }

    void open_block(const Words& words) {
        if (words[0] == "table" && words.size() > 3) {
            table_ = cat(words[1], ' ', words[2]);
            is_dormant_ = false;
        }
        const bool is_chain = words[0] == "chain" && words.size() > 2;
        blocks_.push_back(is_chain ? &chains_[cat(table_, ' ', words[1])] : nullptr);
    }

    Chains chains_;
    std::string table_;
    bool is_dormant_ = false;     // The table is switched off.
    std::vector<Chain*> blocks_;  // a chain, or null for a table or a set
};

/// What stands at `at`: "22", "{ 22, 8000-9000 }", "22,80". Empty if it has no end.
Words values_at(const Words& words, std::size_t at) {
    Words values;
    const bool is_set = at < words.size() && words[at] == "{";
    for (std::size_t i = at + (is_set ? 1 : 0); i < words.size(); ++i) {
        if (words[i] == "}") return values;
        for (const auto value : split(words[i], ','))
            if (!value.empty()) values.push_back(value);
        if (!is_set) return values;
    }
    return {};
}

bool are_all(const Words& values, auto judge) {
    return !values.empty() && std::ranges::all_of(values, judge);
}

/// False if it is not a number.
bool is_other_port(std::string_view port, PortRange range) {
    std::int64_t first = 0, last = 0;
    const auto dash = port.find_first_of("-:");
    if (!parse_number(port.substr(0, dash), first)) return false;
    last = first;
    if (dash != std::string_view::npos && !parse_number(port.substr(dash + 1), last)) return false;
    return first > range.last || last < range.first;
}

/// True if the rule surely does not match a new TCP connection of a peer to a port of a rank.
bool is_for_others(const Words& words, PortRange range) {
    constexpr std::array<std::string_view, 6> open_already{"established", "related", "invalid",
                                                           "ESTABLISHED", "RELATED", "INVALID"};
    constexpr std::array<std::string_view, 3> in_map{":", "accept", "drop"};
    constexpr std::array<std::string_view, 8> protocols{"udp",  "icmp", "icmpv6", "ipv6-icmp",
                                                        "igmp", "esp",  "ah",     "gre"};
    constexpr std::array<std::string_view, 5> of_protocol{"dport", "sport", "type", "code", "length"};
    if (std::ranges::any_of(words, [](std::string_view word) { return word.starts_with('!') || word == "#"; }))
        return false;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const auto word = words[i], next = words[i + 1];
        if (word == "iif" || word == "iifname" || word == "-i") {
            if (next == "lo" || next == "\"lo\"") return true;
        } else if ((word == "state" && i > 0 && words[i - 1] == "ct") || word == "--state" || word == "--ctstate") {
            const bool is_map = next == "vmap";
            if (are_all(values_at(words, i + (is_map ? 2 : 1)), [&](std::string_view one) {
                    return is_one_of(open_already, one) || (is_map && is_one_of(in_map, one));
                }))
                return true;
        } else if (word == "l4proto" || word == "protocol" || word == "-p") {
            if (are_all(values_at(words, i + 1), [&](std::string_view one) { return is_one_of(protocols, one); }))
                return true;
        } else if (word == "dport" || word == "--dport" || word == "--dports") {
            if (are_all(values_at(words, i + 1), [&](std::string_view one) { return is_other_port(one, range); }))
                return true;
        } else if (is_one_of(protocols, word) && is_one_of(of_protocol, next)) {
            return true;
        }
    }
    return false;
}

class Peers {
  public:
    Peers(const Chains& chains, PortRange range) : chains_(chains), range_(range) {}

    /// False only if this chain, which takes input and drops the rest, surely drops a peer.
    bool may_pass(const std::string& name) { return may_accept(name, !chains_.at(name).has_drop_policy); }
    /// A rule because of which that is not known. Empty: there is none.
    [[nodiscard]] std::string_view unknown_rule() const { return unknown_rule_; }

  private:
    /// `leaving_accepts`: what leaves the chain before its end is accepted, by the policy.
    bool may_accept(const std::string& name, bool leaving_accepts) {
        if (!visited_.insert(name).second) return false;
        const auto table = name.substr(0, name.rfind(' ') + 1);
        return std::ranges::any_of(chains_.at(name).rules, [&](std::string_view rule) {
            const auto words = words_of(rule);
            return !words.empty() && !is_for_others(words, range_) && may_accept(rule, words, table, leaving_accepts);
        });
    }

    bool may_accept(std::string_view rule, const Words& words, const std::string& table, bool leaving_accepts) {
        constexpr std::array<std::string_view, 5> accepts{"accept", "ACCEPT", "queue", "NFQUEUE", "vmap"};
        constexpr std::array<std::string_view, 3> does_not{"drop", "reject", "log"};
        constexpr std::array<std::string_view, 4> targets{"DROP", "REJECT", "LOG", "NFLOG"};
        const auto is_there = [&](const auto& these) {
            return std::ranges::any_of(words, [&](std::string_view word) { return is_one_of(these, word); });
        };
        if (is_there(accepts)) return true;
        for (std::size_t i = 0; i < words.size(); ++i) {
            const auto next = i + 1 < words.size() ? words[i + 1] : std::string_view();
            const bool returns = words[i] == "return" || (words[i] == "-j" && next == "RETURN");
            const bool leaves = returns || words[i] == "goto" || words[i] == "-g";
            if (leaves) {
                if (leaving_accepts) return true;
                if (returns) return false;
            } else if (words[i] != "jump" && words[i] != "-j") {
                continue;
            }
            // What leaves a chain that was jumped to goes on behind the jump.
            const auto chain = cat(table, next);
            if (chains_.contains(chain)) return may_accept(chain, false);
            if (is_one_of(targets, next)) return false;
            unknown_rule_ = rule;
            return true;
        }
        if (is_there(does_not)) return false;
        unknown_rule_ = rule;
        return true;
    }

    const Chains& chains_;
    const PortRange range_;
    std::set<std::string> visited_;
    std::string_view unknown_rule_;
};

/// What nothing is known of, because the rules, or one of them, cannot be read.
Measured not_known(std::string_view why, std::string mend) {
    return {Level::info, "the rules of the firewall", cat("could not look: ", why),
            "a rule that accepts the job's other nodes", std::move(mend)};
}

std::vector<Measured> firewall(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("firewall");
    if (const auto* unreadable = look.first("unreadable"))
        return {not_known(unreadable->text("text"), "run muster doctor as root")};
    if (look.state != Look::State::done) return {};
    PortRange range;
    if (const auto* ports = facts.look("network").first("ports"))
        range = {ports->number("first").value_or(range.first), ports->number("last").value_or(range.last)};
    const auto chains = RuleReader().read(look);
    std::vector<Measured> found;
    for (const auto& [name, chain] : chains) {
        if (!chain.takes_input || !chain.drops_rest) continue;
        Peers peers(chains, range);
        if (!peers.may_pass(name))
            found.push_back({Level::warning, cat("the firewall's chain ", name),
                             cat("accepts no new connection on the ports of ranks, ", range.first, " to ", range.last),
                             "a rule that accepts the job's other nodes",
                             name.starts_with("ip filter INPUT")
                                 ? "iptables -I INPUT -s NETWORK -j ACCEPT, with the network of the job's nodes"
                                 : cat("nft insert rule ", name, " ip saddr NETWORK accept, with the network of the ",
                                       "job's nodes")});
        else if (!peers.unknown_rule().empty())
            found.push_back(not_known(cat("a rule of the chain ", name, " is not understood: ", peers.unknown_rule()),
                                      "muster doctor --level 2 connects the nodes"));
    }
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
