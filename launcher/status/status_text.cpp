#include "launcher/status/status_text.h"

#include <algorithm>

#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

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

bool has_job(const StatusFacts& facts, std::string_view job) {
    return std::ranges::find(facts.jobs, job, &StatusJob::id) != facts.jobs.end();
}

std::string unknown_job(const StatusFacts& facts, std::string_view job) {
    std::vector<std::string> ids;
    for (const auto& one : facts.jobs) ids.push_back(one.id);
    return cat("no job '", printable_line(job), "'; ",
               ids.empty() ? "this daemon has no jobs" : "jobs: ", join(ids, ", "));
}

}  // namespace muster::launcher
