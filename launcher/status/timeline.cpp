#include "launcher/status/timeline.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "agent/diagnosis/json_members.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using nlohmann::json;
using Phase = Timeline::Phase;
using MarkKind = Timeline::MarkKind;

struct Told {
    std::string type;  ///< Without "muster." and ".v1".
    Duration at{};
    std::int64_t round = -1;
    std::int64_t step = -1;
    std::int64_t first_step = -1;
    std::int64_t before_ms = -1;  ///< So long before it began what it tells.
    std::string text;
};

/// "2026-11-23T18:02:11.482113Z": an event's time has exactly this form.
std::optional<Duration> time_in(std::string_view text) {
    using namespace std::chrono;
    const auto number = [text](std::size_t at, std::size_t size) {
        int value = -1;
        const auto* const end = text.data() + at + size;
        return std::from_chars(text.data() + at, end, value).ptr == end ? value : -1;
    };
    if (text.size() != 27 || text[10] != 'T' || text[26] != 'Z') return std::nullopt;
    const year_month_day date{year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                              day(static_cast<unsigned>(number(8, 2)))};
    const int parts[] = {number(11, 2), number(14, 2), number(17, 2), number(20, 6)};
    if (!date.ok() || std::ranges::any_of(parts, [](int part) { return part < 0; })) return std::nullopt;
    return sys_days(date).time_since_epoch() + hours(parts[0]) + minutes(parts[1]) + seconds(parts[2]) +
           microseconds(parts[3]);
}

std::optional<Told> told_in(std::string_view line) {
    const auto event = json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("data") || !event["data"].is_object()) return std::nullopt;
    const auto& data = event["data"];
    const auto at = time_in(agent::text_of(event, "time"));
    const auto whole = agent::text_of(event, "type");
    if (!at || !whole.starts_with("muster.") || !whole.ends_with(".v1")) return std::nullopt;
    return Told{.type = whole.substr(7, whole.size() - 10),
                .at = *at,
                .round = agent::integer_or(data, "round"),
                .step = agent::integer_or(data, "step"),
                .first_step = agent::integer_or(data, "first_step"),
                .before_ms = std::max(agent::integer_or(data, "hung_ms"), agent::integer_or(data, "detecting_ms")),
                .text = printable_line(agent::text_of(data, "text"))};
}

class Fold {
  public:
    void take(const Told& told) {
        if (told.type == "job.started" && line_.is_over) line_ = {};
        if (line_.spans.empty()) begin(told);
        // A host's wall clock may have been set back.
        const auto at = std::max(told.at, line_.spans.back().from);
        if (told.step >= 0 && told.round >= 0) note_progress(told, at);
        const bool begins = told.type == "round.sealed" || told.type == "round.resumed";
        if (begins || told.type == "hang.over") hangs_ = false;
        if (told.type == "hang.suspected") hangs_ = true;
        const auto phase = line_.spans.back().phase;
        if (begins)
            turn_to(Phase::starting, told, at);
        else if (told.type == "round.stepping")
            turn_to(hangs_ ? Phase::hung : Phase::stepping, told, at);
        else if (told.type == "hang.over" && phase == Phase::hung)
            turn_to(Phase::stepping, told, at);
        else if (told.type == "hang.suspected" && phase == Phase::stepping)
            turn_to(Phase::hung, told, before(told, at));
        else if (told.type == "round.ended")
            end_round(told, at);
        else if (told.type == "round.drained")
            turn_to(Phase::waiting, told, at);
        else if (told.type == "job.ended")
            end(told, at);
        else
            mark(told, at);
    }

    std::optional<Timeline> result(Duration now) && {
        if (line_.spans.empty()) return std::nullopt;
        if (!line_.is_over) line_.spans.back().to = std::max(now, line_.spans.back().from);
        line_.to = line_.spans.back().to;
        return std::move(line_);
    }

  private:
    void begin(const Told& told) {
        line_.begins_late = told.type != "job.started";
        line_.from = told.at;
        line_.spans.push_back({.from = told.at, .to = told.at, .text = told.text});
    }

    void turn_to(Phase phase, const Told& told, Duration at) {
        line_.spans.back().to = at;
        const bool is_between = phase == Phase::waiting;
        line_.spans.push_back(
            {.phase = phase, .from = at, .to = at, .round = is_between ? -1 : told.round, .text = told.text});
    }

    /// Not before the last word.
    [[nodiscard]] Duration before(const Told& told, Duration at) const {
        const auto longest = std::chrono::floor<std::chrono::milliseconds>(at - line_.spans.back().from).count();
        return at - std::chrono::milliseconds(std::clamp<std::int64_t>(told.before_ms, 0, longest));
    }

    /// A round without steps was not starting all the time.
    void settle_start() {
        if (line_.spans.back().phase == Phase::starting) line_.spans.back().phase = Phase::unmeasured;
    }
    void end_round(const Told& told, Duration at) {
        const auto failed_at = before(told, at);
        settle_start();
        if (failed_at < at && line_.spans.back().phase != Phase::hung) turn_to(Phase::detecting, told, failed_at);
        turn_to(Phase::stopping, told, at);
    }
    void end(const Told& told, Duration at) {
        settle_start();
        line_.spans.back().to = at;
        line_.is_over = true;
        line_.spans.back().text += cat("; ", told.text);
    }

    void note_progress(const Told& told, Duration at) {
        const bool begins = told.type == "round.stepping" && told.first_step >= 0;
        line_.progress.push_back({at, told.round, begins ? told.first_step : told.step});
    }

    void mark(const Told& told, Duration at) {
        const auto add = [&](MarkKind kind) { line_.marks.push_back({kind, at, told.text}); };
        if (told.type == "worker.failed") add(MarkKind::failure);
        if (told.type == "node.lost") add(MarkKind::loss);
        if (told.type == "checkpoint.committed") add(MarkKind::checkpoint);
        if (told.type == "checkpoint.failed") add(MarkKind::failed_checkpoint);
        if (told.type == "preemption.notice" || told.type == "fault.injected") add(MarkKind::notice);
    }

    Timeline line_;
    bool hangs_ = false;  ///< By the last word of it, which may come before the first step.
};

}  // namespace

Result<Timeline> read_timeline(std::string_view lines, Duration now_since_1970) {
    Fold fold;
    std::size_t number = 0;
    for (const auto line : split(lines, '\n')) {
        ++number;
        if (trim(line).empty()) continue;
        const auto told = told_in(line);
        if (!told) return Error{Errc::bad_frame, cat("line ", number, " of the answer is not an event of muster")};
        if (told->type != "events.dropped") fold.take(*told);
    }
    auto timeline = std::move(fold).result(now_since_1970);
    if (!timeline) return Error{Errc::invalid_argument, "the daemon keeps no events of this job"};
    return *std::move(timeline);
}

std::string_view name(Timeline::Phase phase) {
    constexpr std::string_view names[] = {
        "waiting for nodes",       "starting", "stepping", "hung", "no steps reported",
        "a failure not yet known", "stopping"};
    return names[static_cast<std::size_t>(phase)];
}

}  // namespace muster::launcher
