// Which nodes test each other, and which of them are bad. Pure; the caller runs the tests.
//
// Round 1 tests a random perfect matching. A pair that passes clears both of its nodes, and a pair that fails makes two
// suspects. From round 2 on each suspect meets a cleared node, each cleared node at most once in a round: if that
// fails, the suspect is bad, because its partner is not; if it passes, the suspect is cleared. Two rounds therefore
// decide while at most a quarter of the nodes is bad: there are at most two suspects for each of them, and as many
// cleared nodes. Otherwise there are more rounds. Without any cleared node the suspects are shuffled again.
//
// A pair that failed although both of its nodes are cleared is tested once more in the end, and then named as a path.
// So that chance does not decide, the caller repeats a test that fails (pair_test.h), and once more where its failure
// would name something (names_if_failed()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace muster::runtime {

/// Two nodes, the lower number first.
using NodePair = std::pair<int, int>;

class Pairing {
  public:
    /// `seed` decides the matchings. Nodes are 0 to node_count - 1.
    Pairing(int node_count, std::uint64_t seed);

    /// The pairs of the next round; no node is in two of them. Empty: nothing is left to find out. Call told() for each
    /// of the pairs before the next call.
    std::vector<NodePair> next_round();
    void told(NodePair pair, bool passed);
    /// Before told(): a failure of this pair names a node or a path.
    [[nodiscard]] bool names_if_failed(NodePair pair) const;

    [[nodiscard]] int round_count() const { return round_count_; }
    [[nodiscard]] std::vector<int> bad_nodes() const;
    /// Neither cleared nor bad: no cleared node was left to test them.
    [[nodiscard]] std::vector<int> undecided_nodes() const;
    /// Pairs that failed twice although both nodes are cleared.
    [[nodiscard]] std::vector<NodePair> bad_paths() const;

  private:
    enum class State { suspect, cleared, bad };

    std::vector<int> in(State state) const;
    [[nodiscard]] State state(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
    void shuffle(std::vector<int>& nodes);
    std::vector<NodePair> match(std::vector<int> suspects);
    std::vector<NodePair> meet_cleared(const std::vector<int>& suspects);
    std::vector<NodePair> doubtful_paths();

    std::vector<State> nodes_;
    std::uint64_t random_;
    int round_count_ = 0;
    int shuffle_count_ = 0;
    bool tests_paths_ = false;
    std::set<NodePair> failed_;
    std::set<NodePair> tested_again_;
    std::set<NodePair> bad_paths_;
};

}  // namespace muster::runtime
