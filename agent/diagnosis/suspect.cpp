#include "agent/diagnosis/suspect.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Places = std::vector<ActivityGroup>;

/// The only group that satisfies it; null: none or several do.
const ActivityGroup* only(const Places& groups, auto condition) {
    const auto found = std::ranges::find_if(groups, condition);
    if (found == groups.end() || std::find_if(found + 1, groups.end(), condition) != groups.end()) return nullptr;
    return &*found;
}

bool stands_stopped(const ActivityGroup& group) {
    return group.first.state.starts_with("stopped by a signal");
}

/// "world" of "all_reduce 42 of world". Torch calls groups "undefined" that were given no name: these may be several.
std::string_view communicator(std::string_view operation) {
    const auto at = operation.find(" of ");
    const auto name = at == std::string_view::npos ? std::string_view() : operation.substr(at + 4);
    return name == "undefined" ? std::string_view() : name;
}

/// The operation that more than half of the ranks are inside of; empty: there is none, or they use several
/// communicators, where different operations are as they should be.
std::string_view operation_of_most(const Places& groups) {
    std::map<std::string_view, std::uint32_t> counts;
    std::uint32_t all = 0;
    const auto name = communicator(groups.front().first.operation);
    for (const auto& group : groups) {
        const auto& one = group.first;
        if (!one.inside || name.empty() || communicator(one.operation) != name) return {};
        counts[one.operation] += group.count;
        all += group.count;
    }
    const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    return most->second * 2 > all ? most->first : std::string_view();
}

}  // namespace

std::optional<Suspect> suspect_of(const Verdict& verdict) {
    const auto& groups = verdict.activities;
    if (!verdict.first || verdict.first->kind != FailureKind::communication_error || groups.empty()) return {};
    if (std::ranges::any_of(groups, [](const auto& group) { return group.first.idle_ms == 0; })) return {};
    if (const auto* stopped = only(groups, stands_stopped)) return Suspect{*stopped, stopped->first.state};
    const auto* outside = only(groups, [](const auto& group) { return !group.first.inside; });
    if (outside != nullptr) {
        // The list has the largest place inside an operation at its end.
        const auto& waiting = groups.back();
        if (!waiting.first.inside || waiting.count < outside->count) return {};
        return Suspect{*outside, cat("missing from ", waiting.first.operation)};
    }
    const auto most = operation_of_most(groups);
    if (most.empty()) return {};
    const auto* odd = only(groups, [&](const auto& group) { return group.first.operation != most; });
    if (odd == nullptr) return {};
    return Suspect{*odd, cat("inside ", odd->first.operation, " where most are inside ", most)};
}

std::string Suspect::text() const {
    return cat(who(group), ", ", why);
}

}  // namespace muster::agent
