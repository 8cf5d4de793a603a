// What `muster top` shows. The head tells what is wrong; below is a table of jobs or nodes, and the last row has the
// keys. A small screen loses the foot first, then the heading, then all of the head but its first line.
#include <algorithm>
#include <iterator>

#include "launcher/status/text_columns.h"
#include "launcher/status/top.h"
#include "rendezvous/base/text/decimal.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::size_t rows_with_heading = 4;
constexpr std::size_t rows_with_foot = 6;
/// Of the marks before each row of a table: selected, in trouble.
constexpr std::size_t mark_columns = 2;
constexpr std::size_t gpus_of_line = 7;  ///< In 80 columns, with two digits each and 100 %.

const StatusLine nobody_waits{"none of its ranks waits or is missing"};

std::vector<StatusLine> help_lines() {
    return {{"muster top: what the jobs of a daemon do, and what is wrong", LineStyle::heading},
            {""},
            {"  up, down, k, j        select a row; also page up/down, space, home, end, g, G"},
            {"  enter                 open the selected job or node"},
            {"  esc                   go back; with a filter: show all rows again"},
            {"  /                     show only rows whose host, place or job contains a text"},
            {"  s                     sort nodes by trouble, rank, host, or time of silence"},
            {"  r                     reverse the order"},
            {"  l                     follow the logs of the selected row; Ctrl-C comes back"},
            {"  p                     show the stacks of the selected node's workers"},
            {"  e                     list what happened to the selected job or node"},
            {"  Ctrl-L                draw the screen anew"},
            {"  q, Ctrl-C             leave"},
            {""},
            {"'!' marks what is in trouble, '>' the selected row. Nothing here changes a job."},
            {"Any key closes this help."}};
}

std::vector<StatusLine> node_lines(const StatusNode& node, const StatusJob& job) {
    std::vector<StatusLine> lines{
        {cat("node ", node.host, " (pid ", node.pid, ") of job ", job.id), LineStyle::heading},
        {cat("place: ", node.is_left_out ? std::string("left out") : node.place),
         is_in_trouble(node) ? LineStyle::attention : LineStyle::plain},
        {cat("group rank: ", node.group_rank < 0 ? std::string("-") : cat(node.group_rank), ", ranks: ", ranks_of(node),
             " (", node.slots, " in all)")},
        {cat("heard: ", heard_of(node))}};
    for (std::size_t i = 0; i < node.gpus.size(); ++i) {
        if (i % gpus_of_line == 0) lines.push_back({i == 0 ? "GPU use in %: " : "  "});
        const auto& [index, percent] = node.gpus[i];
        lines.back().text += cat(i % gpus_of_line == 0 ? "" : ", ", index, ": ", percent);
    }
    auto waits = waiting_lines({&node});
    if (waits.empty()) waits.resize(1, nobody_waits);
    append(lines, std::move(waits));
    return lines;
}

/// Broken at blanks, so that nothing is cut but words that are too wide.
std::vector<StatusLine> wrapped(const StatusLine& line, std::size_t columns) {
    std::vector<StatusLine> lines;
    for (const auto word : split(line.text, ' ')) {
        if (lines.empty())
            lines.push_back({std::string(word), line.style});
        else if (columns_of(lines.back().text) + 1 + columns_of(word) <= columns)
            lines.back().text += cat(' ', word);
        else
            lines.push_back({cat("  ", word), line.style});
    }
    return lines;
}

}  // namespace

StatusLine Top::Rows::line(std::size_t row, std::size_t columns) const {
    const auto width = columns - std::min(columns, mark_columns);
    if (row >= jobs.size()) {
        const auto& node = *nodes[row - jobs.size()];
        auto line = node_row(node, width);
        return {cat(' ', is_in_trouble(node) ? '!' : ' ', line.text), line.style};
    }
    const auto& job = *jobs[row];
    auto line = job_row(job, width);
    if (!has_trouble(job)) return {cat("  ", line.text), line.style};
    return {cat(" !", line.text), LineStyle::attention};
}

std::vector<StatusLine> Top::speed_lines(const StatusJob& job, Instant now) const {
    const auto rate = rates_.find(job.id);
    if (rate == rates_.end() || job.step < 0) return {};
    const auto speed = rate->second.per_second(now);
    const auto unchanged = std::chrono::floor<std::chrono::seconds>(rate->second.unchanged(now));
    // Agents report every 10 s, and a step may take longer: the pace is that of before the last step.
    const auto before = rate->second.per_second(now - unchanged);
    const auto usual = std::max<std::chrono::duration<double>>(20s, 3s / before.value_or(1.0));
    const bool stands = job.phase == "running" && unchanged > usual;
    if (!speed && !stands) return {};
    return {{cat("speed: ", speed ? cat(one_decimal(*speed), " steps/s") : std::string("unknown"),
                 stands ? cat("; no new step for ", describe(unchanged)) : std::string()),
             stands ? LineStyle::attention : LineStyle::plain}};
}

std::vector<StatusLine> Top::head(Instant now) const {
    const auto& facts = status_.reader.facts();
    if (shows_help_) return help_lines();
    std::vector<StatusLine> lines;
    if (!status_.trouble.empty())
        lines.push_back(no_answer_line(daemon_, now - status_.answered_at, status_.trouble));
    else if (!status_.has_facts)
        lines.push_back({cat("asking ", daemon_, " ...")});
    if (!status_.has_facts) return lines;
    append(lines, daemon_lines(facts));
    const auto* const job = shown_job();
    if (job == nullptr) {
        if (!job_.empty())
            lines.push_back({cat(unknown_job(facts, job_), "; esc: all jobs"), LineStyle::attention});
        else
            lines.push_back({facts.jobs.empty()
                                 ? cat("no jobs at ", daemon_)
                                 : cat(facts.jobs.size(), facts.jobs.size() == 1 ? " job at " : " jobs at ", daemon_)});
        return lines;
    }
    if (!node_) {
        auto told = job_lines(*job);
        std::ranges::move(speed_lines(*job, now), std::inserter(told, told.begin() + 1));
        append(lines, std::move(told));
    } else if (const auto* const node = shown_node(*job)) {
        append(lines, node_lines(*node, *job));
    } else {
        lines.push_back(
            {cat("node ", node_->text, " (pid ", node_->pid, ") has left job ", job->id), LineStyle::attention});
    }
    return lines;
}

Top::Layout Top::layout(StatusSize size, const Rows& rows, Instant now) const {
    Layout layout;
    // One node has room for all that is known of it.
    for (const auto& line : head(now)) append(layout.head, node_ ? wrapped(line, size.columns) : std::vector{line});
    layout.foot_rows = size.rows >= rows_with_foot ? 1 : 0;
    const bool has_table = rows.size() > 0 && !shows_help_;
    layout.heading_rows = has_table && size.rows >= rows_with_heading ? 1 : 0;
    const auto room = size.rows - layout.foot_rows - layout.heading_rows;
    // The head has at least half of the room, and what the table does not need.
    const auto for_table = has_table ? std::min(rows.size(), room / 2) : 0;
    const auto for_head = std::max<std::size_t>(room - for_table, std::min<std::size_t>(room, 1));
    if (layout.head.size() > for_head) {
        const auto more = layout.head.size() - for_head + 1;
        layout.head.resize(for_head);
        if (for_head > 1) layout.head.back() = {cat("... and ", more, " more lines"), LineStyle::heading};
    }
    layout.table_rows = has_table ? room - layout.head.size() : 0;
    return layout;
}

std::string Top::foot(const Rows& rows, const Layout& layout) const {
    static constexpr std::string_view order_names[] = {"trouble", "rank", "host", "heard"};
    if (shows_help_) return "any key: back";
    if (types_filter_) return cat("/", filter_, "_");
    if (node_) return "esc back  q quit  ? help  l logs  p stacks  e events";
    const auto first = layout.table_rows == 0 ? 0 : selected(rows) / layout.table_rows * layout.table_rows;
    const auto last = std::min(rows.size(), first + layout.table_rows);
    return cat(rows.size() == 0 ? std::size_t{0} : first + 1, "-", last, " of ", rows.size(),
               filter_.empty() ? std::string() : cat(" with '", filter_, "' (esc: all ", rows.all_count, ")"),
               "  q quit  ? help  enter open  / filter",
               shown_job() == nullptr
                   ? std::string()
                   : cat("  s by ", order_names[static_cast<std::size_t>(order_)], is_reversed_ ? ", reversed" : ""),
               "  l logs  e events");
}

void Top::draw_table(Screen& screen, const Layout& layout, const Rows& rows) const {
    if (layout.table_rows == 0) return;
    const auto columns = screen.size().columns;
    const auto width = columns - std::min(columns, mark_columns);
    auto at = layout.head.size();
    if (layout.heading_rows > 0) {
        const auto heading = rows.jobs.empty() ? node_heading(width) : job_heading(width);
        screen.put(at++, mark_columns, heading.text, heading.style);
    }
    const auto row = selected(rows);
    const auto first = row / layout.table_rows * layout.table_rows;  // Whole pages: fewer cells change.
    for (auto one = first; one < std::min(rows.size(), first + layout.table_rows); ++one, ++at) {
        const auto line = rows.line(one, columns);
        screen.put(at, 0, line.text, line.style);
        if (one != row) continue;
        screen.put(at, 0, ">", line.style);
        screen.mark(at, LineStyle::selected);
    }
}

Screen Top::screen(StatusSize size, Instant now) const {
    Screen screen(size);
    const auto rows = this->rows();
    const auto layout = this->layout(size, rows, now);
    for (std::size_t row = 0; row < layout.head.size(); ++row) {
        const auto& line = layout.head[row];
        screen.put(row, 0, cut_to(line.text, size.columns), line.style);
    }
    if (!shows_help_) draw_table(screen, layout, rows);
    if (layout.foot_rows > 0) screen.put(size.rows - 1, 0, cut_to(foot(rows, layout), size.columns));
    return screen;
}

}  // namespace muster::launcher
