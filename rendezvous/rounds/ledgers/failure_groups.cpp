#include "rendezvous/rounds/ledgers/failure_groups.h"

#include <algorithm>

#include "rendezvous/base/text/rank_text.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/ledgers/verdict.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t line_bytes_max = 300;

std::string_view last_line(std::string_view text) {
    text = trim(text);
    return without_rank(text.substr(text.rfind('\n') + 1));  // npos + 1 is 0
}

/// Of the last traceback the exception itself, which libraries' farewells may follow; else the last line.
std::string_view exception_line(std::string_view text) {
    const auto traceback = text.rfind("Traceback (most recent call last)");
    if (traceback == std::string_view::npos) return last_line(text);
    const auto lines = split(text.substr(traceback), '\n');
    for (std::size_t i = 1; i < lines.size(); ++i) {
        const auto line = without_rank(lines[i]);
        if (!trim(line).empty() && line.front() != ' ') return trim(line);
    }
    return last_line(text);
}

}  // namespace

std::string error_line(const Failure& failure) {
    if (failure.rank < 0) return sentence(failure).substr(0, line_bytes_max);
    std::string out = describe(failure.end);
    auto why = trim(failure.cause.text);
    if (why.empty()) why = exception_line(failure.message);
    if (why.empty()) why = exception_line(failure.stderr_tail);
    if (!why.empty()) out += cat(" - ", why);
    if (out.size() > line_bytes_max) out.resize(line_bytes_max);
    return out;
}

FailureGroups::FailureGroups(std::vector<Kept> kept) {
    for (auto& group : kept) {
        Group made{group.kind, std::move(group.error), group.error_rank, group.count, RankRanges(group.ranges)};
        rank_count_ += made.ranges.size();
        groups_.emplace(std::move(group.key), std::move(made));
    }
}

std::vector<FailureGroups::Kept> FailureGroups::kept() const {
    std::vector<Kept> all;
    for (const auto& [key, group] : groups_)
        all.push_back({key, group.kind, group.error, group.error_rank, group.count, group.ranges.kept()});
    return all;
}

std::string FailureGroups::key_of(const Failure& failure, std::string_view line) {
    // A node is a group of its own: its host is what there is to say.
    const auto words = failure.rank < 0 ? std::string(line) : without_numbers(line);
    return cat(static_cast<int>(failure.kind), ' ', describe(failure.end), ' ', words);
}

void FailureGroups::add(const Failure& failure) {
    auto line = error_line(failure);
    const auto key = key_of(failure, line);
    auto found = groups_.find(key);
    if (found == groups_.end()) {
        if (groups_.size() >= kept_max) return;
        found = groups_.emplace(key, Group{failure.kind, line, failure.rank, 0, {}}).first;
    }
    auto& group = found->second;
    ++group.count;
    if (failure.rank < group.error_rank) {
        group.error = std::move(line);
        group.error_rank = failure.rank;
    }
    if (failure.rank < 0 || rank_count_ >= ranks_max) return;
    ++rank_count_;
    // Another round's worker of that rank cannot be here: one that is in already is a repetition.
    group.ranges.add(failure.rank);
}

std::vector<FailureGroup> FailureGroups::list(const Failure& first) const {
    const auto first_key = key_of(first, error_line(first));
    std::vector<std::pair<const std::string*, const Group*>> order;
    for (const auto& [key, group] : groups_) order.emplace_back(&key, &group);
    std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        const bool a_first = *a.first == first_key;
        const bool b_first = *b.first == first_key;
        if (a_first != b_first) return a_first;
        if (a.second->kind != b.second->kind) return a.second->kind < b.second->kind;
        return a.second->count > b.second->count;
    });
    if (order.size() > native::groups_max) order.resize(native::groups_max);
    std::vector<FailureGroup> out;
    for (const auto& [key, group] : order)
        out.push_back({group->kind, group->error, group->ranges.text(group->count), group->count});
    return out;
}

}  // namespace muster::rendezvous
