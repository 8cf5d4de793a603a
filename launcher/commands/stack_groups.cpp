#include "launcher/commands/stack_groups.h"

#include <algorithm>

#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t named_nodes_max = 4;

std::string describe_nodes(const std::vector<std::string>& nodes) {
    return nodes.size() <= named_nodes_max ? join(nodes, ", ") : cat(nodes.size(), " nodes");
}

/// "  thread 28651 python3:" without the number.
std::string without_thread_id(std::string_view line) {
    constexpr std::string_view word = "thread ";
    const auto begin = line.find_first_not_of(' ');
    if (begin == line.npos || !line.substr(begin).starts_with(word)) return std::string(line);
    const auto end = line.find_first_not_of("0123456789", begin + word.size());
    return cat(line.substr(0, begin + word.size() - 1), end == line.npos ? "" : line.substr(end));
}

}  // namespace

void StackGroups::add(const std::string& node, std::string_view answer) {
    std::uint32_t rank = 0;
    std::string frames;
    std::string key;
    bool has_rank = false;
    const auto keep = [&] {
        if (!has_rank) return;
        auto& group = groups_[key];
        group.frames = group.ranks.empty() ? frames : key;
        group.ranks.insert(rank);
        if (group.nodes.empty() || group.nodes.back() != node) group.nodes.push_back(node);
        frames.clear();
        key.clear();
    };
    for (const auto line : split(trim(answer), '\n')) {
        if (line.starts_with("rank ")) {
            keep();
            has_rank = parse_number(line.substr(5, line.find(':') - 5), rank);
        } else if (has_rank) {
            frames += cat(printable_line(line), '\n');
            key += cat(printable_line(without_thread_id(line)), '\n');
        }
    }
    keep();
    if (!has_rank) resting_.push_back(node);
}

std::string StackGroups::text() const {
    std::vector<const Group*> all;
    for (const auto& [key, group] : groups_) all.push_back(&group);
    std::ranges::sort(all, {},
                      [](const Group* group) { return std::pair(group->ranks.size(), *group->ranks.begin()); });
    std::string text;
    for (const auto* group : all) {
        const std::vector<std::uint32_t> ranks(group->ranks.begin(), group->ranks.end());
        text += cat(ranks.size() == 1 ? "rank " : "ranks ", describe_ranges(ranks), " on ",
                    describe_nodes(group->nodes), ":\n", group->frames);
    }
    if (!resting_.empty()) text += cat("no worker runs on ", describe_nodes(resting_), '\n');
    return text;
}

}  // namespace muster::launcher
