#include "launcher/status/status_text.h"

#include <algorithm>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

struct Character {
    std::size_t bytes = 1;
    std::size_t columns = 1;
};

/// Of valid UTF-8. East Asian wide characters and emoji take two columns, combining marks none.
Character character_at(std::string_view text) {
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (bytes == 1 || text.size() < bytes) return {};
    char32_t point = first & (0xFFU >> (bytes + 1));
    for (std::size_t i = 1; i < bytes; ++i) point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
    const bool combining = (point >= 0x300 && point <= 0x36F) || point == 0x200B || point == 0x200D || point == 0xFE0F;
    const bool wide = (point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF) ||
                      (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
                      (point >= 0xFE30 && point <= 0xFE6F) || (point >= 0xFF00 && point <= 0xFF60) ||
                      (point >= 0xFFE0 && point <= 0xFFE6) || (point >= 0x1F300 && point <= 0x1FAFF) ||
                      (point >= 0x20000 && point <= 0x3FFFD);
    return {bytes, combining ? 0U : wide ? 2U : 1U};
}

std::string padded(std::string_view text, std::size_t columns) {
    auto cell = cut_to(text, columns);
    cell.append(columns - columns_of(cell), ' ');
    return cell;
}

std::string restarts(const StatusJob& job) {
    return cat(job.restarts_used, "/", job.restarts_max);
}

std::size_t running_nodes(const StatusJob& job) {
    return static_cast<std::size_t>(std::ranges::count_if(
        job.nodes, [](const auto& node) { return node.place == "running" || node.place == "succeeded"; }));
}

std::string nodes_wanted(const StatusJob& job) {
    return job.nodes_min == job.nodes_max ? cat(job.nodes_max) : cat(job.nodes_min, "-", job.nodes_max);
}

LineStyle style_of(const StatusJob& job) {
    if (job.phase == "running") return LineStyle::good;
    return job.phase == "draining" || job.phase == "ending" ? LineStyle::attention : LineStyle::plain;
}

std::string number_or_dash(std::int64_t number) {
    return number < 0 ? std::string("-") : cat(number);
}

/// 0 is the worst.
int order_of(const StatusNode& node) {
    if (node.place == "lost") return 0;
    if (!node.is_connected) return 1;
    for (const auto& rank : node.ranks)
        if (rank.is_overdue) return 2;
    if (node.place == "draining") return 3;
    if (node.is_left_out) return 4;
    return node.ranks.empty() ? 6 : 5;
}

void add_table(std::vector<StatusLine>& lines, const StatusFacts& facts, std::size_t columns) {
    const auto widths = [columns](std::string_view id, std::string_view phase, std::string_view round,
                                  std::string_view nodes, std::string_view step, std::string_view restarted) {
        const auto id_columns = columns > 60 ? columns - 52 : 8;
        return cat(padded(id, id_columns), " ", padded(phase, 9), " ", padded(round, 6), " ", padded(nodes, 12), " ",
                   padded(step, 10), " ", padded(restarted, 9));
    };
    lines.push_back({widths("JOB", "PHASE", "ROUND", "NODES", "STEP", "RESTARTS"), LineStyle::heading});
    for (const auto& job : facts.jobs)
        lines.push_back(
            {widths(job.id, job.phase, number_or_dash(job.round), cat(running_nodes(job), "/", nodes_wanted(job)),
                    number_or_dash(job.step), restarts(job)),
             style_of(job)});
}

std::string missing_text(const StatusJob& job) {
    constexpr std::size_t listed_max = 16;
    auto named = job.missing_hosts;
    const auto count = named.size();
    if (count > listed_max) named.resize(listed_max);
    return cat(join(named, ", "), count > listed_max ? cat(" and ", count - listed_max, " more") : std::string());
}

void add_ranks(std::vector<StatusLine>& lines, const StatusNode& node) {
    for (const auto& rank : node.ranks) {
        const auto where = rank.place.empty() ? std::string() : cat(" in ", rank.place);
        const auto since = describe(Duration(1ms) * rank.idle_ms);
        if (rank.is_overdue)
            lines.push_back({cat("rank ", rank.rank, " on ", node.host, " is missing", where, ", idle for ", since,
                                 rank.operation.empty() ? "" : ", after ", rank.operation),
                             LineStyle::attention});
        else
            lines.push_back(
                {cat("rank ", rank.rank, " on ", node.host, " waits in ", rank.operation, where), LineStyle::plain});
    }
}

void add_summary(std::vector<StatusLine>& lines, const StatusJob& job) {
    lines.push_back(
        {cat("job ", job.id, ": ", job.phase, job.round < 0 ? std::string() : cat(", round ", job.round), ", ",
             running_nodes(job), " of ", nodes_wanted(job), " nodes in the round",
             job.step < 0 ? std::string() : cat(", step ", job.step), ", ", restarts(job), " restarts used"),
         style_of(job)});
    if (!job.waiting_for.empty()) lines.push_back({cat("waiting for ", job.waiting_for), LineStyle::attention});
    if (!job.missing_hosts.empty()) lines.push_back({cat("missing: ", missing_text(job)), LineStyle::attention});
    if (job.checkpoint_step >= 0)
        lines.push_back({cat("newest checkpoint at the end of the last round: step ", job.checkpoint_step)});
    if (!job.goodput.empty()) lines.push_back({cat("time: ", job.goodput)});
}

void add_job(std::vector<StatusLine>& lines, const StatusJob& job, std::size_t columns) {
    add_summary(lines, job);
    std::vector<const StatusNode*> nodes;
    for (const auto& node : job.nodes) nodes.push_back(&node);
    std::ranges::stable_sort(nodes, {}, [](const auto* node) { return std::pair(order_of(*node), node->group_rank); });
    for (const auto* node : nodes) add_ranks(lines, *node);
    if (nodes.empty()) return;
    const auto host_columns = columns > 60 ? columns - 46 : 14;
    const auto row = [&](std::string_view host, std::string_view pid, std::string_view place, std::string_view ranks,
                         std::string_view heard) {
        return cat(padded(host, host_columns), " ", padded(pid, 8), " ", padded(place, 10), " ", padded(ranks, 12), " ",
                   padded(heard, 10));
    };
    lines.push_back({row("NODE", "PID", "PLACE", "RANKS", "HEARD"), LineStyle::heading});
    for (const auto* node : nodes) {
        const bool has_ranks = node->rank_base >= 0 && node->slots > 0;
        const auto ranks = !has_ranks         ? std::string("-")
                           : node->slots == 1 ? cat(node->rank_base)
                                              : cat(node->rank_base, "-", node->rank_base + node->slots - 1);
        const auto place = node->is_left_out ? std::string("left out") : node->place;
        const auto heard = node->is_connected ? cat(describe(Duration(1ms) * node->silent_ms), " ago") : "no link";
        lines.push_back({row(node->host, cat(node->pid), place, ranks, heard),
                         order_of(*node) < 4 ? LineStyle::attention : LineStyle::plain});
    }
}

}  // namespace

std::size_t columns_of(std::string_view text) {
    std::size_t columns = 0;
    while (!text.empty()) {
        const auto next = character_at(text);
        columns += next.columns;
        text.remove_prefix(std::min(next.bytes, text.size()));
    }
    return columns;
}

std::string cut_to(std::string_view text, std::size_t columns) {
    if (columns_of(text) <= columns) return std::string(text);
    const std::string_view dots = std::string_view("...").substr(0, std::min<std::size_t>(3, columns));
    std::size_t used = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        const auto next = character_at(text.substr(at));
        if (used + next.columns > columns - dots.size()) break;
        used += next.columns;
        at += next.bytes;
    }
    return cat(text.substr(0, at), dots);
}

std::vector<StatusLine> status_lines(const StatusFacts& facts, std::string_view job, StatusSize size) {
    std::vector<StatusLine> lines;
    if (facts.stands_by)
        lines.push_back({facts.leader.empty() ? "this daemon stands by, and knows no leader"
                                              : cat("this daemon stands by; ask the leader, ", facts.leader),
                         LineStyle::attention});
    if (!facts.trouble.empty())
        lines.push_back({cat("the daemon cannot write its state: ", facts.trouble), LineStyle::attention});
    const auto found = std::ranges::find(facts.jobs, job, &StatusJob::id);
    const auto* shown = found != facts.jobs.end()               ? &*found
                        : facts.jobs.size() == 1 && job.empty() ? &facts.jobs[0]
                                                                : nullptr;
    if (shown != nullptr)
        add_job(lines, *shown, size.columns);
    else if (facts.jobs.empty())
        lines.push_back({"no jobs"});
    else
        add_table(lines, facts, size.columns);
    if (size.rows > 0 && lines.size() > size.rows) {
        const auto more = lines.size() - size.rows + 1;
        lines.resize(size.rows - 1);
        lines.push_back({cat("... and ", more, " more lines"), LineStyle::heading});
    }
    for (auto& line : lines) {
        line.text = cut_to(line.text, size.columns);
        line.text.resize(line.text.find_last_not_of(' ') + 1);
    }
    return lines;
}

StatusLine no_answer_line(std::string_view endpoint, Duration since, std::string_view why, StatusSize size) {
    const auto whole = std::chrono::floor<std::chrono::seconds>(since);
    return {cut_to(cat("no answer from ", endpoint, " for ", describe(whole), ": ", printable_line(why)), size.columns),
            LineStyle::attention};
}

std::string unknown_job(const StatusFacts& facts, std::string_view job) {
    std::vector<std::string> ids;
    for (const auto& one : facts.jobs) ids.push_back(one.id);
    return cat("no job '", printable_line(job), "'; ",
               ids.empty() ? "this daemon has no jobs" : "jobs: ", join(ids, ", "));
}

}  // namespace muster::launcher
