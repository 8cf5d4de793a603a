// Which nodes test each other, and which of them are bad. Pure; the caller runs the tests.
//
// Round 1 tests a random perfect matching. A pair that passes clears both of its nodes and joins them to one group. A
// pair that fails makes two suspects. From round 2 on each suspect meets a cleared node, each cleared node at most once
// in a round. If that passes, the suspect is cleared. A suspect that failed with two cleared nodes (accusers) is
// probably bad. With one alone the path between the two may be bad.
//
// Cleared nodes that no suspect needs join the groups meanwhile, so that all cleared nodes end in one group. Groups
// between which four tests failed (of small groups all) and none passed stay apart: the network is cut between them. A
// suspect then has to fail with two nodes of each group before it is bad. If several nodes are suspects with two
// accusers, they also test each other: nodes on the far side of a cut pass, bad nodes do not.
//
// Two rounds therefore decide on one bad node, three while at most a quarter of the nodes is bad, and four with an odd
// number of nodes: the one without a partner in round 1 is a suspect more. Otherwise there are more rounds. Without any
// cleared node the suspects are shuffled again. Two rounds show all bad nodes, but do not tell several of them from
// good ones behind a cut, which fail with all others until they meet (DOCTOR.md has the argument).
//
// Nodes of one machine type test each other first, so that a slow one is compared with its like: the odd node of a type
// waits in round 1, and a suspect meets cleared nodes of its type, where there are any with which it has not failed. It
// waits for one of them in one round at most, and then meets any.
//
// A pair of one group that failed although both of its nodes are cleared is tested again in the end, and named as a
// path once it has failed three times. So that chance does not decide, the caller repeats a test that fails
// (pair_test.h).
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

/// Nodes of a machine type to compare with each other. Of two, nobody tells which one is slow.
inline constexpr long comparable_nodes = 3;

class Pairing {
  public:
    /// `seed` decides the matchings. Nodes are 0 to node_count - 1. `types` has the number of each one's machine type;
    /// empty: all are of one type.
    Pairing(int node_count, std::uint64_t seed, std::vector<int> types = {});

    /// The pairs of the next round; no node is in two of them. Empty: nothing is left to find out, and the verdicts
    /// below are final. Call told() for each of the pairs before the next call.
    std::vector<NodePair> next_round();
    void told(NodePair pair, bool passed);

    [[nodiscard]] int round_count() const { return round_count_; }
    [[nodiscard]] std::vector<int> bad_nodes() const { return in(State::bad); }
    /// Neither cleared nor bad: no cleared node was left to test them.
    [[nodiscard]] std::vector<int> undecided_nodes() const { return in(State::suspect); }
    /// The cleared nodes, in groups that no passing pair connects; the largest group first. More than one: the network
    /// is cut between them.
    [[nodiscard]] std::vector<std::vector<int>> groups() const;
    /// Pairs of one group that failed three times although both nodes are cleared.
    [[nodiscard]] std::vector<NodePair> bad_paths() const;
    /// The nodes of the largest group, to search among for what no pair shows. None beside a bad path: larger groups
    /// with both of its nodes fail, too, and behind it there may be others that no pair has tested.
    [[nodiscard]] std::vector<int> nodes_to_group() const;

  private:
    enum class State { suspect, cleared, bad };

    [[nodiscard]] std::vector<int> in(State state) const;
    [[nodiscard]] State state(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] int group(int node) const { return groups_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] bool have_failed(int a, int b) const;
    [[nodiscard]] std::size_t accuser_count(int suspect) const;
    [[nodiscard]] bool lacks_accusers(int suspect, int group) const;
    [[nodiscard]] bool is_path(NodePair pair) const;
    void find_cuts();
    [[nodiscard]] bool are_alike(int a, int b) const {
        return types_[static_cast<std::size_t>(a)] == types_[static_cast<std::size_t>(b)];
    }
    /// The odd node of a type, which waits for the others' result.
    [[nodiscard]] bool waits(int node) const;
    void shuffle(std::vector<int>& nodes);
    [[nodiscard]] std::vector<NodePair> match(std::vector<int> nodes) const;
    std::vector<NodePair> meet_cleared(const std::vector<int>& suspects, std::vector<int>& cleared);
    std::vector<NodePair> join_groups(const std::vector<int>& cleared);
    std::vector<NodePair> match_accused(std::vector<int> accused);
    std::vector<NodePair> plan();
    [[nodiscard]] std::vector<NodePair> doubtful_paths() const;

    std::vector<State> nodes_;
    std::vector<int> types_;   // by node
    std::vector<int> groups_;  // by node: one number for all nodes that passing pairs connect
    std::uint64_t random_;
    int round_count_ = 0;
    int shuffle_count_ = 0;
    int join_count_ = 0;                         // rounds in which groups met
    int far_count_ = 0;                          // rounds in which suspects met several groups
    int mutual_count_ = 0;                       // rounds in which accused nodes met one another
    std::set<int> have_waited_{};                // suspects, for a cleared node of their type
    std::map<NodePair, int> failures_;           // of pairs that did not pass since
    std::map<int, std::set<int>> failed_with_;   // the same by node
    std::map<int, std::size_t> cleared_groups_;  // their sizes, as of this round, as is what follows
    std::set<NodePair> cuts_;                    // two groups each
    bool is_settled_ = false;                    // no two groups of cleared nodes can join any more
};

}  // namespace muster::runtime
