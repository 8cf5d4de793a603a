#include "launcher/status/timeline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/svg.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/text/utc.h"

namespace muster::launcher {

namespace {

using Phase = Timeline::Phase;
using MarkKind = Timeline::MarkKind;

// The picture's rows, in pixels.
constexpr double width = 1000, height = 384;
constexpr double left = 90, right = 980;
constexpr double rounds_top = 84, rounds_bottom = 114;
constexpr double marks_middle = 130, checkpoints_middle = 148;
constexpr double chart_top = 176, chart_bottom = 350;
constexpr std::size_t letters_max = 145;
constexpr std::string_view grey = "#5f6368", faint = "#dadce0";

std::string_view colour(Phase phase) {
    constexpr std::string_view colours[] = {"#bdc1c6", "#fbc02d", "#2e7d32", "#8e24aa",
                                            "#90a4ae", "#ff8a65", "#e64a19"};
    return colours[static_cast<std::size_t>(phase)];
}

std::string_view colour(MarkKind kind) {
    constexpr std::string_view colours[] = {"#c62828", "#6d1b1b", "#1565c0", "#c62828", "#ef6c00"};
    return colours[static_cast<std::size_t>(kind)];
}

std::string time_text(Duration since_1970, const char* format) {
    return utc_text(std::chrono::floor<std::chrono::seconds>(since_1970), format);
}

/// "18:02:11", of a long job "11-23 18:02".
std::string clock_text(Duration since_1970, bool is_long) {
    return time_text(since_1970, is_long ? "%m-%d %H:%M" : "%H:%M:%S");
}

std::string cut(std::string_view text) {
    return text.size() <= letters_max ? std::string(text) : cat(front_of(text, letters_max - 3), "...");
}

/// A short number that is not below `value`.
double round_up(double value) {
    const auto power = std::pow(10.0, std::floor(std::log10(value)));
    for (const double factor : {1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0})
        if (factor * power >= value * 0.9999) return factor * power;
    return 10 * power;
}

class Picture {
  public:
    explicit Picture(const Timeline& timeline) : line_(timeline), svg_(width, height) {}

    std::string draw(const std::string& job, const std::string& goodput) {
        svg_.text({left, 20}, cut(cat("job ", job, ", ", time_text(line_.from, "%Y-%m-%d"), " UTC",
                                      line_.begins_late ? ", from the oldest event that is kept" : "",
                                      line_.is_over ? "" : ", still running")));
        svg_.text({left, 38}, cut(goodput), {.fill = grey});
        legend();
        time_axis();
        spans();
        marks();
        chart();
        return svg_.finish();
    }

  private:
    [[nodiscard]] double x_of(Duration at) const {
        const auto whole = std::max<double>(1, static_cast<double>((line_.to - line_.from).count()));
        return left + (right - left) * std::clamp(static_cast<double>((at - line_.from).count()) / whole, 0.0, 1.0);
    }

    void legend() {
        double x = left;
        const auto name_it = [&](std::string_view words) {
            svg_.text({x + 14, 62}, words, {.fill = grey});
            x += 30 + 6.7 * static_cast<double>(words.size());
        };
        for (const auto phase : {Phase::waiting, Phase::starting, Phase::stepping, Phase::hung, Phase::unmeasured,
                                 Phase::detecting, Phase::stopping}) {
            const bool is_there = std::ranges::any_of(line_.spans, [&](const auto& one) { return one.phase == phase; });
            if (!is_there) continue;
            svg_.box({x, 53, 10, 10}, colour(phase));
            name_it(name(phase));
        }
        constexpr std::array<std::pair<MarkKind, std::string_view>, 5> kinds{
            {{MarkKind::failure, "worker failed"},
             {MarkKind::loss, "node lost"},
             {MarkKind::notice, "notice or fault"},
             {MarkKind::checkpoint, "checkpoint"},
             {MarkKind::failed_checkpoint, "failed checkpoint"}}};
        for (const auto& [kind, words] : kinds) {
            const bool is_there = std::ranges::any_of(line_.marks, [&](const auto& one) { return one.kind == kind; });
            if (!is_there) continue;
            sign(kind, {x + 5, 58}, {});
            name_it(words);
        }
    }

    /// Failures point down to their moment, checkpoints are diamonds.
    void sign(MarkKind kind, Svg::Point middle, std::string_view title) {
        const auto [x, y] = middle;
        const bool is_checkpoint = kind == MarkKind::checkpoint || kind == MarkKind::failed_checkpoint;
        if (is_checkpoint)
            svg_.shape({{x, y - 5}, {x + 5, y}, {x, y + 5}, {x - 5, y}}, colour(kind), title);
        else
            svg_.shape({{x - 5, y + 5}, {x + 5, y + 5}, {x, y - 5}}, colour(kind), title);
    }

    void time_axis() {
        using namespace std::chrono_literals;
        constexpr std::array<Duration, 22> steps{100ms, 200ms, 500ms, 1s,    2s, 5s, 10s, 15s, 30s, 1min, 2min,
                                                 5min,  10min, 15min, 30min, 1h, 2h, 3h,  6h,  12h, 24h,  168h};
        const auto whole = line_.to - line_.from;
        const auto found = std::ranges::find_if(steps, [&](Duration step) { return whole / step <= 8; });
        const auto step = found == steps.end() ? whole / 4 : *found;
        const bool is_long = whole > 24h;
        for (auto at = line_.from - line_.from % step + step; at <= line_.to; at += step) {
            const auto x = x_of(at);
            svg_.line({{x, rounds_top}, {x, chart_bottom}}, faint);
            svg_.text({x, chart_bottom + 16}, clock_text(at, is_long), {.fill = grey, .align = Svg::Align::middle});
        }
        for (const auto& [y, words] : {std::pair{rounds_top + 19, "rounds"}, std::pair{marks_middle + 4, "events"},
                                       std::pair{checkpoints_middle + 4, "checkpoints"}})
            svg_.text({left - 8, y}, words, {.fill = grey, .align = Svg::Align::end});
    }

    void spans() {
        double labelled_to = 0;
        for (const auto& span : line_.spans) {
            const auto from = x_of(span.from), to = x_of(span.to);
            const auto title = cat(span.round < 0 ? std::string() : cat("round ", span.round, ", "), name(span.phase),
                                   " for ", describe(span.to - span.from), ": ", span.text);
            // Whatever happened is seen, however short it was.
            svg_.box({from, rounds_top, std::max(to - from, 0.8), rounds_bottom - rounds_top}, colour(span.phase),
                     title);
            if (span.phase != Phase::starting && span.phase != Phase::unmeasured) continue;
            const auto words = cat(span.round);
            const auto space = 7.0 * static_cast<double>(words.size());
            if (from < labelled_to) continue;
            svg_.text({from + 2, rounds_top - 4}, words, {.fill = grey});
            labelled_to = from + space + 4;
        }
    }

    void marks() {
        for (const auto& mark : line_.marks) {
            const bool is_checkpoint = mark.kind == MarkKind::checkpoint || mark.kind == MarkKind::failed_checkpoint;
            sign(mark.kind, {x_of(mark.at), is_checkpoint ? checkpoints_middle : marks_middle},
                 cat(clock_text(mark.at, false), " ", mark.text));
        }
    }

    struct Rate {
        Duration from{};
        Duration to{};
        double steps_per_second = 0;
        bool goes_on = false;  ///< From the one before it, in the same round.
    };

    [[nodiscard]] std::vector<Rate> rates() const {
        std::vector<Rate> all;
        bool goes_on = false;
        for (std::size_t i = 1; i < line_.progress.size(); ++i) {
            const auto& from = line_.progress[i - 1];
            const auto& to = line_.progress[i];
            const auto seconds = std::chrono::duration<double>(to.at - from.at).count();
            // What was told at a round's end may be of before the last report.
            const bool counts = from.round == to.round && seconds >= 0.05 && to.step >= from.step;
            if (counts) all.push_back({from.at, to.at, static_cast<double>(to.step - from.step) / seconds, goes_on});
            goes_on = counts;
        }
        return all;
    }

    void chart() {
        svg_.line({{left, chart_top}, {left, chart_bottom}, {right, chart_bottom}}, grey);
        const auto all = rates();
        svg_.text({20, (chart_top + chart_bottom) / 2 + 25}, "steps/s", {.fill = grey, .upwards = true});
        double most = 0;
        for (const auto& rate : all) most = std::max(most, rate.steps_per_second);
        if (most <= 0) {
            svg_.text({(left + right) / 2, (chart_top + chart_bottom) / 2},
                      "the program has reported no steps (muster.progress)",
                      {.fill = grey, .align = Svg::Align::middle});
            return;
        }
        const auto top = round_up(most);
        const auto y_of = [top](double rate) { return chart_bottom - (chart_bottom - chart_top) * rate / top; };
        for (const double part : {0.0, 0.5, 1.0})
            svg_.text({left - 6, y_of(top * part) + 4}, cat(top * part), {.fill = grey, .align = Svg::Align::end});
        svg_.line({{left, y_of(top / 2)}, {right, y_of(top / 2)}}, faint);
        std::vector<Svg::Point> points;
        const auto draw = [&] {
            if (!points.empty()) svg_.line(points, "#2e7d32", 1.5);
            points.clear();
        };
        for (const auto& rate : all) {
            if (!rate.goes_on) draw();
            const auto y = y_of(rate.steps_per_second);
            points.emplace_back(x_of(rate.from), y);
            points.emplace_back(x_of(rate.to), y);
        }
        draw();
    }

    const Timeline& line_;
    Svg svg_;
};

}  // namespace

std::string timeline_svg(const Timeline& timeline, const std::string& job, const std::string& goodput) {
    return Picture(timeline).draw(job, goodput);
}

}  // namespace muster::launcher
