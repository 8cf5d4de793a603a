#include "worker_runtime/pairs/pairing.h"

#include <algorithm>

namespace muster::runtime {

namespace {

/// Matchings without any pair that passes, after which all nodes stay undecided.
constexpr int shuffles_max = 6;

NodePair pair_of(int a, int b) {
    return {std::min(a, b), std::max(a, b)};
}

}  // namespace

Pairing::Pairing(int node_count, std::uint64_t seed)
    : nodes_(static_cast<std::size_t>(node_count), State::suspect), random_(seed) {}

std::vector<int> Pairing::in(State state) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (nodes_[i] == state) found.push_back(static_cast<int>(i));
    return found;
}

/// Fisher and Yates, by splitmix64: equal seeds give equal matchings everywhere.
void Pairing::shuffle(std::vector<int>& nodes) {
    for (std::size_t left = nodes.size(); left > 1; --left) {
        random_ += 0x9e3779b97f4a7c15ULL;
        auto mixed = random_;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ULL;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebULL;
        mixed ^= mixed >> 31;
        std::swap(nodes[left - 1], nodes[mixed % left]);
    }
}

std::vector<NodePair> Pairing::match(std::vector<int> suspects) {
    if (shuffle_count_ == shuffles_max) return {};
    ++shuffle_count_;
    shuffle(suspects);
    std::vector<NodePair> pairs;
    for (std::size_t i = 0; i + 1 < suspects.size(); i += 2) pairs.push_back(pair_of(suspects[i], suspects[i + 1]));
    return pairs;
}

std::vector<NodePair> Pairing::meet_cleared(const std::vector<int>& suspects) {
    auto cleared = in(State::cleared);
    shuffle(cleared);
    std::vector<NodePair> pairs;
    for (const int suspect : suspects) {
        // Not the pair that has failed: between these two the path alone may be bad.
        const auto partner =
            std::ranges::find_if(cleared, [&](int one) { return !failed_.contains(pair_of(suspect, one)); });
        if (partner == cleared.end()) continue;
        pairs.push_back(pair_of(suspect, *partner));
        cleared.erase(partner);
    }
    return pairs;
}

/// Those that failed once although both are cleared; each node once in a round.
std::vector<NodePair> Pairing::doubtful_paths() {
    std::vector<NodePair> pairs;
    std::set<int> taken;
    for (const auto& pair : failed_) {
        const bool both = state(pair.first) == State::cleared && state(pair.second) == State::cleared;
        if (!both || tested_again_.contains(pair) || taken.contains(pair.first) || taken.contains(pair.second))
            continue;
        taken.insert({pair.first, pair.second});
        tested_again_.insert(pair);
        pairs.push_back(pair);
    }
    return pairs;
}

std::vector<NodePair> Pairing::next_round() {
    tests_paths_ = false;
    const auto suspects = in(State::suspect);
    const bool has_cleared = std::ranges::find(nodes_, State::cleared) != nodes_.end();
    auto pairs = suspects.empty() ? std::vector<NodePair>() : has_cleared ? meet_cleared(suspects) : match(suspects);
    if (pairs.empty()) {
        pairs = doubtful_paths();
        tests_paths_ = true;
    }
    if (!pairs.empty()) ++round_count_;
    return pairs;
}

bool Pairing::names_if_failed(NodePair pair) const {
    return tests_paths_ || state(pair.first) == State::cleared || state(pair.second) == State::cleared;
}

void Pairing::told(NodePair pair, bool passed) {
    auto& first = nodes_[static_cast<std::size_t>(pair.first)];
    auto& second = nodes_[static_cast<std::size_t>(pair.second)];
    if (passed) {
        first = second = State::cleared;
        return;
    }
    if (tests_paths_) {
        bad_paths_.insert(pair);
        return;
    }
    failed_.insert(pair);
    if (first == State::cleared)
        second = State::bad;
    else if (second == State::cleared)
        first = State::bad;
}

std::vector<int> Pairing::bad_nodes() const {
    return in(State::bad);
}

std::vector<int> Pairing::undecided_nodes() const {
    return in(State::suspect);
}

std::vector<NodePair> Pairing::bad_paths() const {
    return {bad_paths_.begin(), bad_paths_.end()};
}

}  // namespace muster::runtime
