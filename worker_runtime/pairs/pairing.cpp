#include "worker_runtime/pairs/pairing.h"

#include <algorithm>

namespace muster::runtime {

namespace {

/// Matchings without any pair that passes, after which all nodes stay undecided.
constexpr int shuffles_max = 6;
/// Cleared nodes with which a bad node failed. With one alone the path may be bad.
constexpr std::size_t accusers = 2;
/// Failures after which a path between cleared nodes is bad.
constexpr int path_failures = 3;

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
    while (suspects.size() > 1) {
        const int one = suspects.back();
        suspects.pop_back();
        // Best one with which it has not failed yet.
        auto partner = std::ranges::find_if(suspects, [&](int two) { return !failures_.contains(pair_of(one, two)); });
        if (partner == suspects.end()) partner = suspects.begin();
        pairs.push_back(pair_of(one, *partner));
        suspects.erase(partner);
    }
    return pairs;
}

std::vector<NodePair> Pairing::meet_cleared(const std::vector<int>& suspects) {
    auto cleared = in(State::cleared);
    shuffle(cleared);
    std::vector<NodePair> pairs;
    for (const int suspect : suspects) {
        const auto& accused_by = accused_by_[suspect];
        // Best one with which it has not failed at all: between these two the path alone may be bad.
        auto partner =
            std::ranges::find_if(cleared, [&](int one) { return !failures_.contains(pair_of(suspect, one)); });
        if (partner == cleared.end())
            partner = std::ranges::find_if(cleared, [&](int one) { return !accused_by.contains(one); });
        if (partner == cleared.end()) continue;
        pairs.push_back(pair_of(suspect, *partner));
        cleared.erase(partner);
    }
    return pairs;
}

bool Pairing::is_cleared(NodePair pair) const {
    return state(pair.first) == State::cleared && state(pair.second) == State::cleared;
}

/// Those that failed although both nodes are cleared; each node once in a round.
std::vector<NodePair> Pairing::doubtful_paths() const {
    std::vector<NodePair> pairs;
    std::set<int> taken;
    for (const auto& [pair, count] : failures_) {
        if (!is_cleared(pair) || count >= path_failures || taken.contains(pair.first) || taken.contains(pair.second))
            continue;
        taken.insert({pair.first, pair.second});
        pairs.push_back(pair);
    }
    return pairs;
}

std::vector<NodePair> Pairing::next_round() {
    const auto suspects = in(State::suspect);
    const bool has_cleared = std::ranges::find(nodes_, State::cleared) != nodes_.end();
    auto pairs = suspects.empty() ? std::vector<NodePair>() : has_cleared ? meet_cleared(suspects) : match(suspects);
    if (pairs.empty()) pairs = doubtful_paths();
    if (!pairs.empty()) ++round_count_;
    return pairs;
}

void Pairing::told(NodePair pair, bool passed) {
    auto& first = nodes_[static_cast<std::size_t>(pair.first)];
    auto& second = nodes_[static_cast<std::size_t>(pair.second)];
    if (passed) {
        first = second = State::cleared;
        failures_.erase(pair);
        return;
    }
    ++failures_[pair];
    if ((first == State::cleared) == (second == State::cleared)) return;
    const auto [accuser, accused] = first == State::cleared ? pair : NodePair(pair.second, pair.first);
    auto& accused_by = accused_by_[accused];
    accused_by.insert(accuser);
    if (accused_by.size() == accusers) nodes_[static_cast<std::size_t>(accused)] = State::bad;
}

std::vector<int> Pairing::bad_nodes() const {
    return in(State::bad);
}

std::vector<int> Pairing::undecided_nodes() const {
    return in(State::suspect);
}

std::vector<NodePair> Pairing::bad_paths() const {
    std::vector<NodePair> paths;
    for (const auto& [pair, count] : failures_)
        if (is_cleared(pair) && count >= path_failures) paths.push_back(pair);
    return paths;
}

}  // namespace muster::runtime
