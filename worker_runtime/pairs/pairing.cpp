#include "worker_runtime/pairs/pairing.h"

#include <algorithm>
#include <numeric>

namespace muster::runtime {

namespace {

/// Matchings without any pair that passes, after which all nodes stay undecided.
constexpr int shuffles_max = 6;
/// Cleared nodes with which a bad node failed. With one alone the path may be bad.
constexpr std::size_t accusers = 2;
/// Pairs of two groups that fail, while none passes, before the network is cut between the two. Three bad paths are
/// no cut.
constexpr std::size_t cut_failures = 4;
/// Failures after which a path between cleared nodes is bad.
constexpr int path_failures = 3;
/// Rounds in which groups of cleared nodes try to join. Where half of the tests pass, each round halves their number.
constexpr int joins_max = 12;
/// Rounds in which suspects meet each of several groups. A small group has no time for many suspects.
constexpr int far_max = 8;
/// Rounds in which accused nodes meet one another, where they are many.
constexpr int mutual_max = 4;

NodePair pair_of(int a, int b) {
    return {std::min(a, b), std::max(a, b)};
}

}  // namespace

Pairing::Pairing(int node_count, std::uint64_t seed, std::vector<int> types)
    : nodes_(static_cast<std::size_t>(node_count), State::suspect),
      types_(std::move(types)),
      groups_(static_cast<std::size_t>(node_count)),
      random_(seed) {
    types_.resize(nodes_.size());
    std::iota(groups_.begin(), groups_.end(), 0);
}

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

bool Pairing::have_failed(int a, int b) const {
    return failures_.contains(pair_of(a, b));
}

std::size_t Pairing::accuser_count(int suspect) const {
    const auto found = failed_with_.find(suspect);
    if (found == failed_with_.end()) return 0;
    return static_cast<std::size_t>(
        std::ranges::count_if(found->second, [&](int other) { return state(other) == State::cleared; }));
}

bool Pairing::lacks_accusers(int suspect, int of_group) const {
    const auto found = failed_with_.find(suspect);
    if (found == failed_with_.end()) return true;
    return static_cast<std::size_t>(std::ranges::count_if(found->second, [&](int other) {
               return state(other) == State::cleared && group(other) == of_group;
           })) < accusers;
}

/// Between which groups of cleared nodes pairs failed, and whether groups are left that may join.
void Pairing::find_cuts() {
    cleared_groups_.clear();
    cuts_.clear();
    for (const int node : in(State::cleared)) ++cleared_groups_[group(node)];
    std::map<NodePair, std::size_t> failed;
    for (const auto& [pair, count] : failures_)
        if (state(pair.first) == State::cleared && state(pair.second) == State::cleared && !is_path(pair))
            ++failed[pair_of(group(pair.first), group(pair.second))];
    for (const auto& [groups, count] : failed)
        if (count >= std::min(cut_failures, cleared_groups_[groups.first] * cleared_groups_[groups.second]))
            cuts_.insert(groups);
    const auto group_count = cleared_groups_.size();
    is_settled_ = join_count_ == joins_max || 2 * cuts_.size() == group_count * (group_count - 1);
}

bool Pairing::waits(int node) const {
    return round_count_ == 0 && std::ranges::count(types_, types_[static_cast<std::size_t>(node)]) >= comparable_nodes;
}

/// All nodes, best each with one of its type with which it has not failed yet.
std::vector<NodePair> Pairing::match(std::vector<int> nodes) const {
    std::vector<NodePair> pairs;
    while (nodes.size() > 1) {
        const int one = nodes.back();
        nodes.pop_back();
        const auto is_new = [&](int two) { return !have_failed(one, two); };
        auto partner = std::ranges::find_if(nodes, [&](int two) { return is_new(two) && are_alike(one, two); });
        if (partner == nodes.end() && waits(one)) continue;
        if (partner == nodes.end()) partner = std::ranges::find_if(nodes, is_new);
        if (partner == nodes.end()) partner = nodes.begin();
        pairs.push_back(pair_of(one, *partner));
        nodes.erase(partner);
    }
    return pairs;
}

/// Takes the partners out of `cleared`. Each group gives one partner before any gives two, so that its others may join
/// another group meanwhile.
std::vector<NodePair> Pairing::meet_cleared(const std::vector<int>& suspects, std::vector<int>& cleared) {
    std::vector<NodePair> pairs;
    for (const auto all = cleared; const int suspect : suspects) {
        const auto may_accuse = [&](int one) {
            return !have_failed(suspect, one) && lacks_accusers(suspect, group(one));
        };
        const auto is_like_it = [&](int one) { return are_alike(suspect, one) && may_accuse(one); };
        auto partner = std::ranges::find_if(cleared, is_like_it);
        if (partner == cleared.end()) {
            // Once: a type of which few nodes work would need many rounds.
            if (std::ranges::any_of(all, is_like_it) && have_waited_.insert(suspect).second) continue;
            partner = std::ranges::find_if(cleared, may_accuse);
        }
        if (partner == cleared.end()) continue;
        pairs.push_back(pair_of(suspect, *partner));
        const int giver = group(*partner);
        cleared.erase(partner);
        std::ranges::stable_partition(cleared, [&](int one) { return group(one) != giver; });
    }
    return pairs;
}

/// The fewest pairs that make one group of all that may join, if all of them pass.
std::vector<NodePair> Pairing::join_groups(const std::vector<int>& cleared) {
    std::vector<NodePair> pairs;
    auto planned = groups_;
    const auto goal = [&planned](int node) -> int& { return planned[static_cast<std::size_t>(node)]; };
    std::vector<bool> is_taken(cleared.size(), false);
    for (std::size_t i = 0; i < cleared.size() && pairs.size() + 1 < cleared_groups_.size(); ++i)
        for (std::size_t j = i + 1; j < cleared.size() && !is_taken[i]; ++j) {
            const int one = cleared[i], two = cleared[j];
            if (is_taken[j] || goal(one) == goal(two) || have_failed(one, two)) continue;
            if (cuts_.contains(pair_of(group(one), group(two)))) continue;
            is_taken[i] = is_taken[j] = true;
            pairs.push_back(pair_of(one, two));
            const int from = goal(two);
            std::ranges::replace(planned, from, goal(one));
        }
    return pairs;
}

bool Pairing::is_path(NodePair pair) const {
    return state(pair.first) == State::cleared && state(pair.second) == State::cleared &&
           group(pair.first) == group(pair.second);
}

/// Those that failed although both nodes are cleared and others connect them; each node once in a round.
std::vector<NodePair> Pairing::doubtful_paths() const {
    std::vector<NodePair> pairs;
    std::set<int> taken;
    for (const auto& [pair, count] : failures_) {
        if (!is_path(pair) || count >= path_failures || taken.contains(pair.first) || taken.contains(pair.second))
            continue;
        taken.insert({pair.first, pair.second});
        pairs.push_back(pair);
    }
    return pairs;
}

/// Accused nodes meet one another in one round, apart from those that have failed with one another before. So many that
/// they may be the nodes of other groups meet in more rounds.
std::vector<NodePair> Pairing::match_accused(std::vector<int> accused) {
    const bool are_many = 4 * accused.size() > nodes_.size();
    if (mutual_count_ >= (are_many ? mutual_max : 1)) return {};
    if (!are_many)
        std::erase_if(accused, [&, all = accused](int one) {
            return std::ranges::any_of(all, [&](int other) { return have_failed(one, other); });
        });
    shuffle(accused);
    return match(std::move(accused));
}

/// Empty: every suspect has its accusers, or nobody can test it.
std::vector<NodePair> Pairing::plan() {
    auto suspects = in(State::suspect), cleared = in(State::cleared);
    if (cleared.empty()) {
        if (shuffle_count_ == shuffles_max) return {};
        ++shuffle_count_;
        shuffle(suspects);
        return match(std::move(suspects));
    }
    find_cuts();
    shuffle(cleared);
    const bool meets_all_groups = is_settled_ && cleared_groups_.size() > 1 && far_count_ < far_max;
    std::vector<int> lacking, accused;
    for (const int suspect : suspects) {
        const auto lacks_in = [&](const auto& one) { return lacks_accusers(suspect, one.first); };
        const bool lacks =
            meets_all_groups ? std::ranges::any_of(cleared_groups_, lacks_in) : accuser_count(suspect) < accusers;
        (lacks ? lacking : accused).push_back(suspect);
    }
    auto pairs = meet_cleared(lacking, cleared);
    if (meets_all_groups && !pairs.empty()) ++far_count_;
    const auto add = [&pairs](const std::vector<NodePair>& more) {
        pairs.insert(pairs.end(), more.begin(), more.end());
    };
    if (!is_settled_) {
        const auto joins = join_groups(cleared);
        join_count_ += joins.empty() ? 0 : 1;
        add(joins);
    }
    // While others lack accusers, it costs no round.
    const bool is_own_round = is_settled_ && lacking.empty();
    const auto mutual = match_accused(std::move(accused));
    if (is_own_round && !mutual.empty()) ++mutual_count_;
    add(mutual);
    return pairs;
}

std::vector<NodePair> Pairing::next_round() {
    auto pairs = plan();
    if (pairs.empty()) {
        for (const int suspect : in(State::suspect))
            if (accuser_count(suspect) >= accusers) nodes_[static_cast<std::size_t>(suspect)] = State::bad;
        pairs = doubtful_paths();
    }
    if (!pairs.empty()) ++round_count_;
    return pairs;
}

void Pairing::told(NodePair pair, bool passed) {
    const auto [one, two] = pair;
    if (!passed) {
        ++failures_[pair];
        failed_with_[one].insert(two);
        failed_with_[two].insert(one);
        return;
    }
    nodes_[static_cast<std::size_t>(one)] = nodes_[static_cast<std::size_t>(two)] = State::cleared;
    failures_.erase(pair);
    failed_with_[one].erase(two);
    failed_with_[two].erase(one);
    const int from = group(two);
    std::ranges::replace(groups_, from, group(one));
}

std::vector<std::vector<int>> Pairing::groups() const {
    std::map<int, std::vector<int>> by_number;
    for (const int node : in(State::cleared)) by_number[group(node)].push_back(node);
    std::vector<std::vector<int>> found;
    for (auto& [number, nodes] : by_number) found.push_back(std::move(nodes));
    std::ranges::sort(found, [](const auto& a, const auto& b) {
        return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
    });
    return found;
}

std::vector<NodePair> Pairing::bad_paths() const {
    std::vector<NodePair> paths;
    for (const auto& [pair, count] : failures_)
        if (is_path(pair) && count >= path_failures) paths.push_back(pair);
    return paths;
}

std::vector<int> Pairing::nodes_to_group() const {
    const auto all = groups();
    return all.empty() || !bad_paths().empty() ? std::vector<int>() : all.front();
}

}  // namespace muster::runtime
