#include "worker_runtime/pairs/group_search.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Of more, a rank connects to some of the others only (worker_runtime/tcp).
constexpr std::size_t group_max = 32;
/// Tests of the same suspects that fail before it is no chance.
constexpr int failures_needed = 3;
/// Fewer nodes make no two groups.
constexpr std::size_t halved_min = 4;

NodeGroup slice(const NodeGroup& all, std::size_t begin, std::size_t end) {
    const auto at = [&](std::size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(std::min(i, all.size())); };
    return {at(begin), at(end)};
}

NodeGroup operator+(NodeGroup one, const NodeGroup& two) {
    one.insert(one.end(), two.begin(), two.end());
    return one;
}

}  // namespace

std::string write_groups(const std::vector<NodeGroup>& groups) {
    std::string out;
    for (const auto& group : groups)
        for (std::size_t i = 0; i < group.size(); ++i) out += cat(i > 0 ? "-" : out.empty() ? "" : " ", group[i]);
    return out;
}

NodeGroup own_group(std::string_view text, int rank) {
    for (const auto word : split(text, ' ')) {
        NodeGroup group;
        for (const auto member : split(word, '-'))
            if (int number = 0; parse_number(member, number)) group.push_back(number);
        if (std::ranges::find(group, rank) != group.end()) return group;
    }
    return {};
}

GroupSearch::GroupSearch(const NodeGroup& nodes) {
    if (nodes.size() < 3) return;
    const auto count = (nodes.size() + group_max - 1) / group_max;
    for (std::size_t i = 0; i < count; ++i) {
        auto suspects = slice(nodes, nodes.size() * i / count, nodes.size() * (i + 1) / count);
        const auto size = suspects.size();
        Part all{.suspects = std::move(suspects), .passed = {}, .group_size = size};
        all.failures = all.can_halve() ? failures_needed - 1 : 0;
        parts_.push_back(std::move(all));
    }
}

bool GroupSearch::Part::can_halve() const {
    return !is_smallest && suspects.size() > 1 && suspects.size() + passed.size() >= halved_min;
}

NodeGroup GroupSearch::Part::whole() const {
    return suspects + slice(passed, 0, group_size - suspects.size());
}

/// The suspects of a half come first.
std::vector<NodeGroup> GroupSearch::Part::halves() const {
    const auto middle = (suspects.size() + 1) / 2;
    auto first = slice(suspects, 0, middle), second = slice(suspects, middle, suspects.size());
    for (const int node : passed) {
        auto& smaller = first.size() < second.size() ? first : second;
        if (smaller.size() < group_size) smaller.push_back(node);
    }
    return {first, second};
}

std::vector<NodeGroup> GroupSearch::next_round() const {
    std::vector<NodeGroup> groups;
    for (const auto& part : parts_) {
        if (part.failures < failures_needed)
            groups.push_back(part.whole());
        else
            std::ranges::move(part.halves(), std::back_inserter(groups));
    }
    return groups;
}

std::vector<GroupSearch::Part> GroupSearch::judge_whole(Part part, bool passed) {
    if (passed) return {};
    if (++part.failures < failures_needed || part.can_halve()) return {std::move(part)};
    found_.push_back(std::move(part.suspects));
    return {};
}

std::vector<GroupSearch::Part> GroupSearch::judge_halves(const Part& part, bool first_passed, bool second_passed) {
    if (first_passed && second_passed) {
        auto smallest = part;
        smallest.failures = 0;
        smallest.is_smallest = true;
        return {std::move(smallest)};
    }
    const auto tested = part.halves();
    const auto middle = (part.suspects.size() + 1) / 2;
    std::vector<Part> left;
    for (std::size_t i = 0; i < 2; ++i) {
        if (i == 0 ? first_passed : second_passed) continue;
        const auto count = i == 0 ? middle : part.suspects.size() - middle;
        const auto& other = tested[1 - i];
        // The other half passed whole, or has a fault of its own; what fills a half up has passed before.
        Part half{.suspects = slice(tested[i], 0, count),
                  .passed = slice(tested[i], count, tested[i].size()),
                  .group_size = tested[i].size()};
        if (first_passed || second_passed) half.passed = std::move(half.passed) + other;
        half.failures = half.can_halve() ? failures_needed : 1;
        left.push_back(std::move(half));
    }
    return left;
}

void GroupSearch::told(const std::vector<bool>& passed) {
    std::vector<Part> left;
    std::size_t at = 0;
    for (auto& part : std::exchange(parts_, {})) {
        const bool is_whole = part.failures < failures_needed;
        std::ranges::move(
            is_whole ? judge_whole(std::move(part), passed[at]) : judge_halves(part, passed[at], passed[at + 1]),
            std::back_inserter(left));
        at += is_whole ? 1 : 2;
    }
    parts_ = std::move(left);
}

}  // namespace muster::runtime
