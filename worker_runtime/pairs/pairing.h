// Which nodes test each other, and which of them are bad. Pure; the caller runs the tests.
//
// Round 1 tests a random perfect matching. A pair that passes clears both of its nodes, and a pair that fails makes two
// suspects. From round 2 on each suspect meets a cleared node, each cleared node at most once in a round. If that
// passes, the suspect is cleared. If it fails, the suspect or the path between the two is bad, so the suspect meets
// another cleared node; there always is one, because a pair clears two. A suspect that failed with both is bad. Three
// rounds therefore decide while at most a quarter of the nodes is bad: there are at most two suspects for each of them,
// and as many cleared nodes. Otherwise there are more rounds. Without any cleared node the suspects are shuffled again.
//
// A pair that failed although both of its nodes are cleared is tested again in the end, and named as a path once it has
// failed three times. So that chance does not decide, the caller repeats a test that fails (pair_test.h).
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

    [[nodiscard]] int round_count() const { return round_count_; }
    [[nodiscard]] std::vector<int> bad_nodes() const;
    /// Neither cleared nor bad: no cleared node was left to test them.
    [[nodiscard]] std::vector<int> undecided_nodes() const;
    /// Pairs that failed three times although both nodes are cleared.
    [[nodiscard]] std::vector<NodePair> bad_paths() const;

  private:
    enum class State { suspect, cleared, bad };

    std::vector<int> in(State state) const;
    [[nodiscard]] State state(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
    void shuffle(std::vector<int>& nodes);
    std::vector<NodePair> match(std::vector<int> suspects);
    std::vector<NodePair> meet_cleared(const std::vector<int>& suspects);
    [[nodiscard]] std::vector<NodePair> doubtful_paths() const;
    [[nodiscard]] bool is_cleared(NodePair pair) const;

    std::vector<State> nodes_;
    std::uint64_t random_;
    int round_count_ = 0;
    int shuffle_count_ = 0;
    std::map<NodePair, int> failures_;         // of pairs that did not pass since
    std::map<int, std::set<int>> accused_by_;  // a suspect, and the cleared nodes with which it failed
};

}  // namespace muster::runtime
