#include "worker_runtime/pairs/pair_rounds.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "rendezvous/base/text/text.h"
#include "worker_runtime/pairs/pair_answer.h"
#include "worker_runtime/pairs/shared_networks.h"

namespace muster::runtime {

namespace {

/// After the deadline an answer that is there still needs time to come from the store. Many that are not there must
/// not add up.
Duration time_until(Instant deadline) {
    const auto left = deadline - std::chrono::steady_clock::now();
    return std::max<Duration>(left, left > -answer_slack ? 100ms : 1ms);
}

}  // namespace

Result<void> test_own(const SearchTerms& terms, int step, std::string_view round) {
    const auto group = own_group(round, terms.rank);
    if (group.empty()) return {};
    const auto name = cat("pair/", step, '/', group.front(), '-', group.back());
    const PairTerms test{.name = name,
                         .ranks = group,
                         .number = static_cast<int>(std::ranges::find(group, terms.rank) - group.begin()),
                         .place = std::shared_ptr<MeetingPlace>(terms.store->below(name + '/')),
                         .address = address_in(terms.networks, round.substr(0, round.find(' '))),
                         .lost_permille = limit_in(round, "lost-permille").value_or(0)};
    const auto result = group.size() == 2 ? test_pair(test) : test_group(test);
    return terms.store->set(cat("result/", step, '/', terms.rank), write_answer({result, wall_clock_ms()}));
}

Result<void> PairRounds::publish(const std::string& text) {
    auto told = terms_.store->set(cat("round/", step_ + 1), text);
    if (told) ++step_;
    return told;
}

Result<std::vector<PairResult>> PairRounds::test(const std::vector<NodeGroup>& groups, std::string_view network) {
    const auto text =
        cat(network, network.empty() ? "" : " ", write_groups(groups), " lost-permille=", terms_.limits.lost_permille);
    if (auto told = publish(text); !told) return told.error();
    const auto deadline = std::chrono::steady_clock::now() + pair_limit + partner_slack + answer_slack;
    if (auto tested = test_own(terms_, step_, text); !tested) return tested.error();
    silent_.clear();
    std::vector<PairResult> results;
    for (const auto& group : groups) results.push_back(collect(group, deadline));
    return results;
}

/// One answer of all ranks: the worst one.
PairResult PairRounds::collect(const NodeGroup& group, Instant deadline) {
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

}  // namespace muster::runtime
