#include "rendezvous/wire/native/worker_activity.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster {

std::string ranks_of_node(std::uint32_t first, std::uint32_t count) {
    return count == 1 ? cat("rank ", first) : cat("ranks ", first, " to ", first + count - 1);
}

std::string who(const ActivityGroup& group) {
    if (group.count != 1) return cat("ranks ", group.ranks, " (", group.count, " workers)");
    return cat("rank ", group.first.rank, " on ", group.host, " (pid ", group.first.pid, ")");
}

namespace {

std::string line_of(const ActivityGroup& group, std::string_view missing_from) {
    const auto& one = group.first;
    auto out = who(group);
    if (one.idle_ms > 0)
        out += cat(": had done nothing for ", describe(Duration(std::chrono::milliseconds(one.idle_ms))), ", ");
    else
        out += group.count == 1 ? ": " : cat(" on ", group.host, ": ");  // a lost node's
    out += one.state;
    if (!one.operation.empty()) out += cat(one.inside ? ", inside " : ", after ", one.operation);
    if (!one.inside && !missing_from.empty()) out += cat(", missing from ", missing_from);
    if (!one.place.empty()) out += cat(", at ", one.place);
    return out;
}

}  // namespace

std::vector<std::string> lines_of(const std::vector<ActivityGroup>& groups) {
    if (groups.empty()) return {};
    const auto waiting = std::ranges::find_if(groups, [](const auto& group) { return group.first.inside; });
    const std::string_view missing_from =
        waiting == groups.end() ? std::string_view{} : std::string_view(waiting->first.operation);
    std::vector<std::string> lines{groups.size() > 1 ? "when the round ended its ranks stood in different places:"
                                                     : "when the round ended:"};
    for (const auto& group : groups) lines.push_back(cat("  ", line_of(group, missing_from)));
    return lines;
}

}  // namespace muster
