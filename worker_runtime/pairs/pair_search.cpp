#include "worker_runtime/pairs/pair_search.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/try.h"
#include "worker_runtime/pairs/group_search.h"
#include "worker_runtime/pairs/pair_answer.h"
#include "worker_runtime/pairs/pair_test.h"
#include "worker_runtime/pairs/pairing.h"

namespace muster::runtime {

namespace {

constexpr Duration start_limit = 30s;
/// After the end of a test, for its results to reach rank 0.
constexpr Duration slack = 2s;
/// A pair with less than this part of the usual bandwidth counts as failed, if its kernels are as slow as its ranks.
constexpr int slow_part = 4;
/// Wall clocks of two nodes that differ by more are named.
constexpr std::int64_t clock_ms_max = 1000;

std::string own_host() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? printable_line(name.data()) : "?";
}

/// "0-3 1-2-5".
std::string write_groups(const std::vector<NodeGroup>& groups) {
    std::string out;
    for (const auto& group : groups)
        for (std::size_t i = 0; i < group.size(); ++i) out += cat(i > 0 ? "-" : out.empty() ? "" : " ", group[i]);
    return out;
}

/// The group of `rank`; empty if it rests in this round.
NodeGroup own_group(std::string_view text, int rank) {
    for (const auto word : split(text, ' ')) {
        NodeGroup group;
        for (const auto member : split(word, '-'))
            if (int number = 0; parse_number(member, number)) group.push_back(number);
        if (std::ranges::find(group, rank) != group.end()) return group;
    }
    return {};
}

std::vector<NodeGroup> as_groups(const std::vector<NodePair>& pairs) {
    std::vector<NodeGroup> groups;
    for (const auto& [a, b] : pairs) groups.push_back({a, b});
    return groups;
}

class Search {
  public:
    explicit Search(const SearchTerms& terms) : terms_(terms) {}

    Result<void> test_own(int round, std::string_view groups) {
        const auto group = own_group(groups, terms_.rank);
        if (group.empty()) return {};
        const auto name = cat("pair/", round, '/', group.front(), '-', group.back());
        const PairTerms test{.name = name,
                             .ranks = group,
                             .number = static_cast<int>(std::ranges::find(group, terms_.rank) - group.begin()),
                             .place = std::shared_ptr<MeetingPlace>(terms_.store->below(name + '/'))};
        const auto result = group.size() == 2 ? test_pair(test) : test_group(test);
        return terms_.store->set(cat("result/", round, '/', terms_.rank), write_answer({result, wall_clock_ms()}));
    }

  protected:
    const SearchTerms& terms_;
};

/// Rank 0: decides on the pairs, and on what they mean.
class LeadingSearch : public Search {
  public:
    using Search::Search;

    Result<std::string> run() {
        Pairing pairing(terms_.world_size, std::random_device()());
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
        auto report = write_report(pairing);
        if (const auto told = publish(report); !told) return told.error();
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
            if (!silent_.empty() && std::exchange(silent_in_group_, silent_).empty()) continue;
            if (!silent_.empty()) return {};
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

    Result<void> publish(const std::string& text) {
        auto told = terms_.store->set(cat("round/", step_ + 1), text);
        if (told) ++step_;
        return told;
    }

    /// One result for each group.
    Result<Results> test(const std::vector<NodeGroup>& groups) {
        const auto text = write_groups(groups);
        if (auto told = publish(text); !told) return told.error();
        const auto deadline = std::chrono::steady_clock::now() + pair_limit + partner_slack + slack;
        if (auto tested = test_own(step_, text); !tested) return tested.error();
        silent_.clear();
        Results results;
        for (const auto& group : groups) results.push_back(collect(group, deadline));
        judge_speeds(results);
        return results;
    }

    /// After the deadline an answer that is there still needs time to come from the store. Many that are not there must
    /// not add up.
    static Duration time_until(Instant deadline) {
        const auto left = deadline - std::chrono::steady_clock::now();
        return std::max<Duration>(left, left > -slack ? 100ms : 1ms);
    }

    /// One answer of all ranks: the worst one.
    PairResult collect(const NodeGroup& group, Instant deadline) {
        std::optional<PairResult> kept;
        for (const int rank : group) {
            const auto text = terms_.store->get(cat("result/", step_, '/', rank), time_until(deadline));
            if (!text) silent_.insert(rank);
            auto answer = text ? read_answer(*text) : PairAnswer{{.why = cat("rank ", rank, " did not answer")}};
            if (!answer) {
                // Another build: the others are tested without it.
                unread_[rank] = answer.error().context;
                answer = PairAnswer{{.why = cat("rank ", rank, ": ", answer.error().context)}};
            }
            const auto& one = answer->result;
            // Answers of a large group may be read long after they were given.
            if (answer->wall_ms > 0 && group.size() == 2) ahead_ms_[rank] = answer->wall_ms - wall_clock_ms();
            if (!kept) kept = one;
            const int rate = std::min(kept->link_mbytes_per_s, one.link_mbytes_per_s);
            const bool sees_losses = kept->sees_losses && one.sees_losses;
            // Of a rank that hangs its partners report only what they see of it.
            if (!one.passed && (kept->passed || !text)) kept = one;
            kept->link_mbytes_per_s = rate;
            kept->sees_losses = sees_losses;
        }
        return *kept;
    }

    /// A pair or group that is slow has failed. The first round decides what is usual: its median, or of fewer than
    /// three pairs the best.
    void judge_speeds(Results& results) {
        if (usual_ == 0) {
            std::vector<int> speeds;
            for (const auto& result : results)
                if (result.passed) speeds.push_back(result.mbytes_per_s);
            std::ranges::sort(speeds);
            if (!speeds.empty()) usual_ = speeds.size() < 3 ? speeds.back() : speeds[speeds.size() / 2];
        }
        for (auto& result : results) {
            const bool is_slow = std::max(result.mbytes_per_s, result.link_mbytes_per_s) * slow_part < usual_;
            if (!result.passed || !is_slow) continue;
            result.passed = false;
            result.why = cat("slow: ", result.mbytes_per_s, " MB/s where ", usual_, " MB/s are usual");
        }
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
    /// median of all: the answers' times say that to within seconds.
    std::string write_clocks() {
        std::vector<std::int64_t> all;
        for (const auto& [rank, ahead] : ahead_ms_) all.push_back(ahead);
        std::ranges::sort(all);
        std::string out;
        std::set<int> named;
        for (const auto& [pair, apart] : clocks_) {
            if (std::abs(apart) <= clock_ms_max) continue;
            const auto usual = all[all.size() / 2];
            const bool is_first = std::abs(ahead_ms_[pair.first] - usual) > std::abs(ahead_ms_[pair.second] - usual);
            const int rank = is_first ? pair.first : pair.second;
            if (named.insert(rank).second)
                out += cat("clock\trank=", rank, "\tahead-ms=", is_first ? -apart : apart, '\n');
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
        for (const auto& [rank, why] : unread_) {
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
            // Each told it before its first answer.
            const auto host = terms_.store->get(cat("host/", rank), 100ms);
            const auto& verdict = verdicts[static_cast<std::size_t>(rank)];
            out +=
                cat("node\trank=", rank, "\thost=", host ? *host : "?", "\tverdict=", verdict,
                    "\tgroup=", group_of[rank], "\twhy=", verdict == "passed" ? "" : printable_line(why_[rank]), '\n');
        }
        for (const auto& [a, b] : pairing.bad_paths())
            out += cat("path\ta=", a, "\tb=", b, "\twhy=", printable_line(why_[a]), '\n');
        return out + write_clocks() + records_ + "end\n";
    }

    int step_ = 0;   // of the lists of pairs or groups that rank 0 has published
    int usual_ = 0;  // MB/s
    std::string records_;
    std::map<int, std::string> why_;
    /// By rank: the size of the last group with it that failed, and why.
    std::map<int, std::pair<std::size_t, std::string>> why_together_;
    std::set<int> silent_;  // in the last round
    std::set<int> silent_in_group_;
    std::map<int, std::string> unread_;        // ranks whose answers have another form
    std::map<NodePair, std::int64_t> clocks_;  // how far the second node's is ahead of the first's
    std::map<int, std::int64_t> ahead_ms_;     // of this node's clock, and what the answer took
};

/// The result where rank 0 hangs.
std::string report_without_lead(const SearchTerms& terms) {
    const auto host = terms.store->get("host/0", 100ms);
    return cat("nodes\texpected=", terms.expected_count, "\tcame=", terms.world_size,
               "\trounds=0\nnode\trank=0\thost=", host ? *host : "?",
               "\tverdict=undecided\twhy=it leads the search, and did not answer\nend\n");
}

/// The other ranks: do what rank 0 says until it has the result.
Result<std::string> follow(const SearchTerms& terms) {
    Search search(terms);
    for (int round = 1;; ++round) {
        auto text = terms.store->get(cat("round/", round), pair_limit + 2 * slack + start_limit);
        if (!text && text.error().code == Errc::timed_out) return report_without_lead(terms);
        if (!text) return with_context(text.error(), "rank 0 says nothing");
        if (text->ends_with("end\n")) return text;
        if (auto tested = search.test_own(round, *text); !tested) return tested.error();
    }
}

}  // namespace

Result<std::string> search_bad_nodes(const SearchTerms& terms) {
    if (auto told = terms.store->set(cat("host/", terms.rank), own_host()); !told) return told.error();
    return terms.rank == 0 ? LeadingSearch(terms).run() : follow(terms);
}

}  // namespace muster::runtime
