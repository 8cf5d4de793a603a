#include "agent/output/line_fold.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/rank_text.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t quoted_bytes = 120;  ///< Of a line that is named again, far from where it was shown.
constexpr std::size_t absent_named_max = 3;
constexpr std::string_view traceback = "Traceback (most recent call last):";

bool is_indented(std::string_view line) {
    return line.empty() || line.front() == ' ' || line.front() == '\t';
}

bool is_blank(std::string_view text) {
    return text.find_first_not_of(" \t\n") == std::string_view::npos;
}

/// The beginning of `text`'s last line: of a traceback that is the error.
std::string quote(std::string_view text) {
    const auto last = text.rfind('\n');
    if (last != std::string_view::npos) text.remove_prefix(last + 1);
    return cat(front_of(text, quoted_bytes), text.size() > quoted_bytes ? "..." : "");
}

}  // namespace

LineFold::SourceId LineFold::open(std::uint32_t rank, std::uint32_t among, std::string prefix) {
    const auto id = next_id_++;
    among_ = among;
    auto& source = sources_[id];
    source.rank = rank;
    source.prefix = std::move(prefix);
    ++expected_[rank];
    return id;
}

void LineFold::close(SourceId id, Instant now) {
    const auto found = sources_.find(id);
    if (found == sources_.end()) return;
    end_block(found->second, now);
    show_bar(found->second, now);
    const auto expected = expected_.find(found->second.rank);
    if (--expected->second == 0) expected_.erase(expected);
    sources_.erase(found);
}

void LineFold::add(SourceId id, std::string_view line, Ending ending, Instant now) {
    const auto found = sources_.find(id);
    if (found == sources_.end()) return;
    auto& source = found->second;
    if (ending == Ending::newline) {
        source.bar.clear();  // the line stands where the bar was
        source.bar_due = source.bar_since = no_deadline;
        return take_line(source, line, now);
    }
    end_block(source, now);
    source.bar = line;
    if (source.bar_since == no_deadline) source.bar_since = now;
    source.bar_due = std::min(now + limits_.quiet, source.bar_since + limits_.window);
    next_due_ = std::min(next_due_, source.bar_due);
}

void LineFold::end_bar(SourceId id, Instant now) {
    const auto found = sources_.find(id);
    if (found != sources_.end()) show_bar(found->second, now);
}

void LineFold::take_line(Source& source, std::string_view line, Instant now) {
    const auto body = without_rank(line);
    const bool begins = body.starts_with(traceback);
    if (begins) end_block(source, now);
    if (!begins && source.block.empty()) return fold(source, line, std::string(line), now);
    source.block.append(line).push_back('\n');
    source.block_due = now + limits_.block_wait;
    next_due_ = std::min(next_due_, source.block_due);
    if ((!begins && !is_indented(body)) || source.block.size() > limits_.block_max_bytes) end_block(source, now);
}

void LineFold::end_block(Source& source, Instant now) {
    source.block_due = no_deadline;
    if (source.block.empty()) return;
    auto block = std::exchange(source.block, {});
    block.pop_back();
    // No line can be equal to this key: it has two line ends.
    fold(source, block, cat(without_numbers(block), "\n\n"), now);
}

void LineFold::show_bar(Source& source, Instant now) {
    if (source.bar_due == no_deadline) return;
    source.bar_due = source.bar_since = no_deadline;
    auto bar = std::exchange(source.bar, {});
    fold(source, bar, bar, now);
}

void LineFold::fold(const Source& source, std::string_view text, std::string key, Instant now) {
    const bool is_block = key.ends_with("\n\n");
    if (is_blank(text) || (!is_block && text.size() > limits_.line_max_bytes)) return show(source, text);
    const auto known = by_key_.find(key);
    if (known == by_key_.end()) {
        show(source, text);
        groups_.push_back({.key = std::move(key),
                           .text = std::string(text),
                           .exact = true,
                           .first_rank = source.rank,
                           .ranks = {source.rank},
                           .repeats = 0,
                           .since = now,
                           .last = now});
        last_shown_ = &groups_.back();
        next_due_ = std::min(next_due_, due(groups_.back()));
        by_key_.emplace(groups_.back().key, std::prev(groups_.end()));
        while (groups_.size() > limits_.open_max) tell(groups_.begin());
        return;
    }
    auto& group = *known->second;
    group.last = now;
    group.exact = group.exact && group.text == text;
    if (!group.ranks.insert(source.rank).second) ++group.repeats;
    if (group.repeats == 0 && group.ranks.size() >= among_) tell(known->second);
}

void LineFold::show(const Source& source, std::string_view text) {
    for (std::size_t from = 0; from <= text.size();) {
        const auto end = std::min(text.find('\n', from), text.size());
        text_.append(source.prefix).append(text.substr(from, end - from)).push_back('\n');
        from = end + 1;
    }
    last_shown_ = nullptr;
}

void LineFold::tell(Groups::iterator group) {
    if (const auto sentence = who(*group); !sentence.empty()) {
        if (last_shown_ == &*group)
            text_ += cat("  [", sentence, "]\n");
        else
            text_ += cat("[", sentence, "] ", quote(group->text), '\n');
        last_shown_ = nullptr;
    }
    if (last_shown_ == &*group) last_shown_ = nullptr;
    by_key_.erase(group->key);
    groups_.erase(group);
}

std::string LineFold::who(const Group& group) const {
    const auto count = group.ranks.size();
    if (count == 1 && group.repeats == 0) return {};
    const auto in_window = describe(std::max<Duration>(group.last - group.since, 1ms));
    const auto times = group.repeats == 1 ? std::string("once") : cat(group.repeats, " times");
    if (count == 1) return cat("again ", times, " in ", in_window);
    std::vector<std::uint32_t> others;
    std::ranges::copy_if(group.ranks, std::back_inserter(others), [&](auto rank) { return rank != group.first_rank; });
    std::vector<std::uint32_t> absent;
    for (const auto& [rank, streams] : expected_) {
        if (!group.ranks.contains(rank)) absent.push_back(rank);
    }
    auto text = cat("same ", group.exact ? "" : "but for numbers ", "from ");
    if (count >= among_)
        text += cat("all ", count, " ", limits_.ranks);
    else if (count + absent.size() == among_ && absent.size() <= absent_named_max && absent.size() < others.size())
        text += cat("all ", limits_.ranks, " but ", describe_ranges(absent), "; ", count, " in all");
    else
        text += cat(others.size() == 1 ? "rank " : "ranks ", describe_ranges(others), "; ", count, " in all");
    if (group.repeats > 0) text += cat("; ", times, " more in ", in_window);
    return text;
}

Instant LineFold::due(const Group& group) const {
    return std::min(group.last + limits_.quiet, group.since + limits_.window);
}

void LineFold::show_due(Instant now) {
    // Asked for each line of a thousand ranks (muster logs).
    if (now < next_due_) return;
    for (auto& [id, source] : sources_) {
        if (source.block_due <= now) end_block(source, now);
        if (source.bar_due <= now) show_bar(source, now);
    }
    for (auto group = groups_.begin(); group != groups_.end();) {
        const auto next = std::next(group);
        if (due(*group) <= now) tell(group);
        group = next;
    }
    next_due_ = due();
}

void LineFold::show_all(Instant now) {
    for (auto& [id, source] : sources_) {
        end_block(source, now);
        show_bar(source, now);
    }
    while (!groups_.empty()) tell(groups_.begin());
}

Instant LineFold::due() const {
    auto earliest = no_deadline;
    for (const auto& [id, source] : sources_) earliest = std::min({earliest, source.block_due, source.bar_due});
    for (const auto& group : groups_) earliest = std::min(earliest, due(group));
    return earliest;
}

}  // namespace muster::agent
