#include "worker_runtime/pairs/pair_search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/pairs/network_search.h"
#include "worker_runtime/pairs/own_machine.h"
#include "worker_runtime/pairs/pairing.h"
#include "worker_runtime/pairs/shared_networks.h"
#include "worker_runtime/pairs/usual_speeds.h"

namespace muster::runtime {

namespace {

constexpr Duration start_limit = 30s;
/// For all nodes to tell what they are, once rank 0 has.
constexpr Duration told_limit = 5s;

std::vector<NodeGroup> as_groups(const std::vector<NodePair>& pairs) {
    std::vector<NodeGroup> groups;
    for (const auto& [a, b] : pairs) groups.push_back({a, b});
    return groups;
}

/// What a node tells of itself before its first answer: "HOST\tMACHINE TYPE\tNETWORKS". "?" if it does not.
std::string told_by(const SearchTerms& terms, int rank, Duration limit) {
    const auto text = terms.store->get(cat("host/", rank), limit);
    return text ? *text : "?";
}

std::string host_of(const SearchTerms& terms, int rank) {
    const auto told = told_by(terms, rank, 100ms);
    return told.substr(0, told.find('\t'));
}

struct Nodes {
    std::vector<std::string> networks{};  // by rank
    std::vector<int> types{};             // a number for each machine type

    static Nodes told_to(const SearchTerms& terms) {
        Nodes nodes;
        std::map<std::string, int, std::less<>> numbers;
        const auto deadline = std::chrono::steady_clock::now() + told_limit;
        for (int rank = 0; rank < terms.world_size; ++rank) {
            const auto left = deadline - std::chrono::steady_clock::now();
            // Many that are not there must not add up.
            const auto text = told_by(terms, rank, std::max<Duration>(left, left > -told_limit ? 100ms : 1ms));
            auto fields = split(text, '\t');
            fields.resize(3);                                                          // another build tells less
            const auto type = fields[1].empty() ? cat(rank) : std::string(fields[1]);  // like no other one
            nodes.types.push_back(numbers.try_emplace(type, static_cast<int>(numbers.size())).first->second);
            nodes.networks.emplace_back(fields[2]);
        }
        return nodes;
    }
};

/// Rank 0: decides on the pairs, and on what they mean.
class LeadingSearch {
  public:
    explicit LeadingSearch(const SearchTerms& terms) : terms_(terms), nodes_(Nodes::told_to(terms)), rounds_(terms) {}

    Result<std::string> run() {
        Pairing pairing(terms_.world_size, std::random_device()(), nodes_.types);
        for (auto pairs = pairing.next_round(); !pairs.empty(); pairs = pairing.next_round()) {
            const auto results = MUSTER_TRY(test(as_groups(pairs)));
            for (std::size_t i = 0; i < pairs.size(); ++i) {
                pairing.told(pairs[i], results[i].passed);
                note(pairs[i], pairing.round_count(), results[i]);
            }
        }
        // What the pairs showed is told in any case.
        if (const auto searched = search_groups(pairing.nodes_to_group()); !searched)
            records_ += cat("untested\twhy=", printable_line(searched.error().context), '\n');
        if (const auto groups = pairing.groups(); !groups.empty() && silent_in_group_.empty())
            records_ += search_networks(rounds_, nodes_.networks, groups.front());
        auto report = write_report(pairing);
        if (const auto told = rounds_.publish(report); !told) return told.error();
        return report;
    }

  private:
    using Results = std::vector<PairResult>;

    Result<void> search_groups(const NodeGroup& nodes) {
        GroupSearch search(nodes);
        for (auto tested = search.next_round(); !tested.empty(); tested = search.next_round()) {
            const auto results = MUSTER_TRY(test(tested));
            // A node that says nothing at all is no fault of groups, and each further round would wait for it. It is
            // asked once more, so that chance does not decide.
            const auto& silent = rounds_.silent();
            if (!silent.empty() && std::exchange(silent_in_group_, silent).empty()) continue;
            if (!silent.empty()) return {};
            silent_in_group_.clear();
            std::vector<bool> passed;
            for (std::size_t i = 0; i < tested.size(); ++i) {
                passed.push_back(results[i].passed);
                if (passed.back()) continue;
                for (const int rank : tested[i]) why_together_[rank] = {tested[i].size(), results[i].why};
            }
            search.told(passed);
        }
        for (const auto& ranks : search.found()) {
            const auto& [size, why] = why_together_[ranks.front()];
            records_ +=
                cat("together\tranks=", write_groups({ranks}), "\tof=", size, "\twhy=", printable_line(why), '\n');
        }
        return {};
    }

    /// One result for each group. A pair or group that is slow has failed.
    Result<Results> test(const std::vector<NodeGroup>& groups) {
        auto results = rounds_.test(groups);
        if (!results) return results;
        for (std::size_t i = 0; i < groups.size(); ++i)
            if (groups[i].size() == 2 && (*results)[i].passed)
                speeds_.told({groups[i].front(), groups[i].back()}, (*results)[i].mbytes_per_s);
        speeds_.end_round();
        for (std::size_t i = 0; i < groups.size(); ++i) {
            auto& result = (*results)[i];
            const auto speed =
                groups[i].size() == 2 ? std::max(result.mbytes_per_s, result.link_mbytes_per_s) : result.mbytes_per_s;
            if (!result.passed || !speeds_.is_slow(groups[i], speed)) continue;
            result.passed = false;
            result.why = cat("slow: ", result.mbytes_per_s, " MB/s where ", speeds_.of(groups[i]), " MB/s are usual");
        }
        return results;
    }

    void note(NodePair pair, int round, const PairResult& result) {
        records_ +=
            cat("pair\ta=", pair.first, "\tb=", pair.second, "\tround=", round, "\tpassed=", result.passed ? 1 : 0,
                "\tlatency-us=", result.latency_us, "\tmbytes-per-s=", result.mbytes_per_s,
                "\tsees-losses=", result.sees_losses ? 1 : 0, "\twhy=", printable_line(result.why), '\n');
        if (std::abs(result.clock_ms) > std::abs(clocks_[pair])) clocks_[pair] = result.clock_ms;
        if (result.passed) return;
        // The last round's counts; but on a path that loses packets even a connection may fail, and says less.
        for (const int rank : {pair.first, pair.second})
            if (auto& why = why_[rank]; why.empty() || !result.why.starts_with(no_connection)) why = result.why;
    }

    /// Two nodes know exactly how far their clocks differ. Which of the two is wrong shows who is farther from the
    /// median of all: the answers' times say that to within seconds. Of two nodes nothing shows it.
    std::string write_clocks() {
        std::vector<std::int64_t> all;
        auto ahead_ms = rounds_.ahead_ms();
        for (const auto& [rank, ahead] : ahead_ms) all.push_back(ahead);
        std::ranges::sort(all);
        std::string out;
        std::set<int> named;
        const auto within = cat("\twithin-ms=", terms_.limits.clock_ms, '\n');
        for (const auto& [pair, apart] : clocks_) {
            if (std::abs(apart) <= terms_.limits.clock_ms) continue;
            if (terms_.world_size == 2)
                return cat("clock\tranks=", write_groups({{pair.first, pair.second}}), "\tahead-ms=", apart, within);
            const auto usual = all[all.size() / 2];
            const bool is_first = std::abs(ahead_ms[pair.first] - usual) > std::abs(ahead_ms[pair.second] - usual);
            const int rank = is_first ? pair.first : pair.second;
            if (named.insert(rank).second)
                out += cat("clock\trank=", rank, "\tahead-ms=", is_first ? -apart : apart, within);
        }
        return out;
    }

    std::string write_report(const Pairing& pairing) {
        std::vector<std::string> verdicts(static_cast<std::size_t>(terms_.world_size), "passed");
        for (const int node : pairing.bad_nodes()) verdicts[static_cast<std::size_t>(node)] = "bad";
        for (const int node : pairing.undecided_nodes()) verdicts[static_cast<std::size_t>(node)] = "undecided";
        // The nodes of the largest group can form a job.
        const auto groups = pairing.groups();
        std::map<int, std::size_t> group_of;
        for (std::size_t number = 1; number < groups.size(); ++number)
            for (const int node : groups[number]) {
                group_of[node] = number;
                verdicts[static_cast<std::size_t>(node)] = "apart";
            }
        for (const auto& [rank, why] : rounds_.unread()) {
            verdicts[static_cast<std::size_t>(rank)] = "unread";
            why_[rank] = why;
        }
        for (const int rank : silent_in_group_) {
            verdicts[static_cast<std::size_t>(rank)] = "undecided";
            why_[rank] = "it did not answer when the nodes were tested all together";
        }
        auto out = cat("nodes\texpected=", terms_.expected_count, "\tcame=", terms_.world_size,
                       "\trounds=", pairing.round_count(), '\n');
        for (int rank = 0; rank < terms_.world_size; ++rank) {
            const auto& verdict = verdicts[static_cast<std::size_t>(rank)];
            out +=
                cat("node\trank=", rank, "\thost=", host_of(terms_, rank), "\tverdict=", verdict,
                    "\tgroup=", group_of[rank], "\twhy=", verdict == "passed" ? "" : printable_line(why_[rank]), '\n');
        }
        for (const auto& [a, b] : pairing.bad_paths())
            out += cat("path\ta=", a, "\tb=", b, "\twhy=", printable_line(why_[a]), '\n');
        for (const auto& [network, mtu, alike] : unlike_mtus(nodes_.networks))
            out +=
                cat("mtu\tnetwork=", printable_line(network), "\tmtu=", mtu, "\tranks=", write_groups({alike}), '\n');
        return out + write_clocks() + records_ + "end\n";
    }

    const SearchTerms& terms_;
    Nodes nodes_;
    PairRounds rounds_;
    UsualSpeeds speeds_{nodes_.types, terms_.limits.link_slow_percent};
    std::string records_;
    std::map<int, std::string> why_;
    /// By rank: the size of the last group with it that failed, and why.
    std::map<int, std::pair<std::size_t, std::string>> why_together_;
    std::set<int> silent_in_group_;
    std::map<NodePair, std::int64_t> clocks_;  // how far the second node's is ahead of the first's
};

/// The result where rank 0 hangs.
std::string report_without_lead(const SearchTerms& terms) {
    return cat("nodes\texpected=", terms.expected_count, "\tcame=", terms.world_size,
               "\trounds=0\nnode\trank=0\thost=", host_of(terms, 0),
               "\tverdict=undecided\twhy=it leads the search, and did not answer\nend\n");
}

/// The other ranks: do what rank 0 says until it has the result.
Result<std::string> follow(const SearchTerms& terms) {
    for (int round = 1;; ++round) {
        auto text = terms.store->get(cat("round/", round), pair_limit + 2 * answer_slack + start_limit);
        if (!text && text.error().code == Errc::timed_out) return report_without_lead(terms);
        if (!text) return with_context(text.error(), "rank 0 says nothing");
        if (text->ends_with("end\n")) return text;
        if (auto tested = test_own(terms, round, *text); !tested) return tested.error();
    }
}

}  // namespace

Result<std::string> search_bad_nodes(const SearchTerms& terms) {
    const auto own = cat(printable_line(host_name()), '\t', machine_type(), '\t', terms.networks);
    if (auto told = terms.store->set(cat("host/", terms.rank), own); !told) return told.error();
    return terms.rank == 0 ? LeadingSearch(terms).run() : follow(terms);
}

}  // namespace muster::runtime
