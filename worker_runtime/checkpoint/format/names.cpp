#include "worker_runtime/checkpoint/format/names.h"

#include <algorithm>
#include <set>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::string_view prefix = "step_";
constexpr std::string_view draft_mark = ".tmp-";
constexpr std::size_t digits_min = 8;
constexpr std::string_view rank_mark = ".rank_", file_mark = ".safetensors";
constexpr std::size_t rank_digits_min = 5;

std::string step_text(std::int64_t step) {
    return cat(prefix, in_digits(static_cast<std::uint64_t>(step), digits_min));
}

bool all_digits(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Returns the step of a name "step_DIGITS", if its digits are written as step_text() writes them.
std::optional<std::int64_t> step_of(std::string_view text) {
    std::int64_t step = 0;
    if (!text.starts_with(prefix)) return std::nullopt;
    const auto digits = text.substr(prefix.size());
    if (!all_digits(digits) || !parse_number(digits, step) || step_text(step) != text) return std::nullopt;
    return step;
}

}  // namespace

std::string in_digits(std::uint64_t number, std::size_t digits) {
    const auto text = cat(number);
    return cat(std::string(text.size() < digits ? digits - text.size() : 0, '0'), text);
}

std::string to_string(const CheckpointName& name) {
    return name.edition == 1 ? step_text(name.step) : cat(step_text(name.step), '.', name.edition);
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view text) {
    CheckpointName name;
    const auto dot = text.find('.');
    const auto step = step_of(text.substr(0, dot));
    if (!step) return std::nullopt;
    name.step = *step;
    if (dot == std::string_view::npos) return name;
    const auto edition = text.substr(dot + 1);
    if (!all_digits(edition) || !parse_number(edition, name.edition) || name.edition < 2) return std::nullopt;
    return to_string(name) == text ? std::optional(name) : std::nullopt;
}

std::string to_string(const LocalName& name) {
    return cat(step_text(name.step), rank_mark, in_digits(static_cast<std::uint64_t>(name.rank), rank_digits_min),
               file_mark);
}

std::optional<LocalName> parse_local_name(std::string_view text) {
    const auto mark = text.find(rank_mark);
    if (mark == std::string_view::npos || !text.ends_with(file_mark)) return std::nullopt;
    const auto step = step_of(text.substr(0, mark));
    LocalName name;
    const auto digits = text.substr(mark + rank_mark.size(), text.size() - file_mark.size() - mark - rank_mark.size());
    if (!step || !all_digits(digits) || !parse_number(digits, name.rank)) return std::nullopt;
    name.step = *step;
    return to_string(name) == text ? std::optional(name) : std::nullopt;
}

std::string to_string(const DraftName& name) {
    return cat(step_text(name.step), draft_mark, name.round, '-', name.nonce);
}

std::optional<DraftName> parse_draft_name(std::string_view text) {
    DraftName name;
    const auto mark = text.find(draft_mark);
    if (mark == std::string_view::npos) return std::nullopt;
    const auto step = step_of(text.substr(0, mark));
    const auto rest = text.substr(mark + draft_mark.size());
    const auto dash = rest.find('-');
    if (!step || dash == std::string_view::npos || !all_digits(rest.substr(0, dash)) ||
        !parse_number(rest.substr(0, dash), name.round)) {
        return std::nullopt;
    }
    name.step = *step;
    name.nonce = rest.substr(dash + 1);
    return name.nonce.empty() ? std::nullopt : std::optional(name);
}

std::vector<CheckpointName> expendable(std::vector<KeptCheckpoint> all, const Retention& retention) {
    std::sort(all.begin(), all.end(), [](const KeptCheckpoint& a, const KeptCheckpoint& b) { return b.name < a.name; });
    std::set<CheckpointName> kept;
    std::set<std::int64_t> steps;  // steps with an undamaged checkpoint; their older editions are not needed
    int last = retention.last;
    bool verified = false;
    for (const auto& each : all) {
        if (each.damaged) {
            kept.insert(each.name);
            continue;
        }
        const bool newest_of_step = steps.insert(each.name.step).second;
        const bool due = retention.every > 0 && each.name.step % retention.every == 0 && newest_of_step;
        if (last > 0 || due || (each.verified && !verified)) kept.insert(each.name);
        if (last > 0) --last;
        verified = verified || each.verified;
    }
    std::vector<CheckpointName> gone;
    for (const auto& each : all) {
        if (!kept.contains(each.name)) gone.push_back(each.name);
    }
    return gone;
}

}  // namespace muster::runtime
