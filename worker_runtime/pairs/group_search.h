// Which nodes have a fault that no pair shows: a group of them fails or is slow, although each of its pairs passes, as
// where a firewall limits connections, or where a switch stalls under many. Pure; the caller runs the tests.
//
// All nodes are tested together, in groups of at most 32. The members of a group that fails are suspects, and each
// further round halves them. Both halves run at once. Each is filled up with nodes that passed, to the size of the
// group that failed, because a fault may need a number of nodes. The suspects of the half that fails stay. If both
// halves fail, each is searched. If both pass, the fault needs nodes of both. A group with those that are left must
// fail three times, so that chance does not decide.
//
// Each fault therefore takes at most 1 + log2(32) + 3 rounds, and a network without one takes one round.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster::runtime {

/// Nodes that are tested together.
using NodeGroup = std::vector<int>;

/// "0-3 1-2-5".
std::string write_groups(const std::vector<NodeGroup>& groups);
/// Of such a text, the group with `rank`; empty if there is none. Other words are skipped.
NodeGroup own_group(std::string_view text, int rank);

class GroupSearch {
  public:
    /// With fewer than three nodes it has nothing to do: a pair's test is all that they need.
    explicit GroupSearch(const NodeGroup& nodes);

    /// The groups of the next round; no node is in two of them. Empty: the search has ended.
    [[nodiscard]] std::vector<NodeGroup> next_round() const;
    /// The results of that round's groups.
    void told(const std::vector<bool>& passed);

    /// Of each fault the fewest nodes that the search could tell. One node: groups with it fail.
    [[nodiscard]] const std::vector<NodeGroup>& found() const { return found_; }

  private:
    struct Part {
        NodeGroup suspects;
        NodeGroup passed;          // nodes that were in a group that passed
        std::size_t group_size;    // of the group that failed
        int failures = 0;          // of a group with all suspects; at three it is halved, or named
        bool is_smallest = false;  // halves of the suspects pass

        [[nodiscard]] bool can_halve() const;
        [[nodiscard]] NodeGroup whole() const;
        [[nodiscard]] std::vector<NodeGroup> halves() const;
    };

    /// What is left of a part after the round.
    std::vector<Part> judge_whole(Part part, bool passed);
    static std::vector<Part> judge_halves(const Part& part, bool first_passed, bool second_passed);

    std::vector<Part> parts_;
    std::vector<NodeGroup> found_;
};

}  // namespace muster::runtime
