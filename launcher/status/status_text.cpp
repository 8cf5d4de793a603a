#include "launcher/status/status_text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "launcher/status/text_columns.h"
#include "rendezvous/base/text/decimal.h"
#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

std::string restarts(const StatusJob& job) {
    const bool is_known = job.restarts_left >= 0 && job.restarts_left <= job.restarts_max;
    return cat(is_known ? job.restarts_max - job.restarts_left : job.restarts_used, "/", job.restarts_max);
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

/// A job of thousands of ranks that wait for each other is told in a few lines.
constexpr std::size_t missing_ranks_told_max = 8;

std::string in_place(const StatusRank& rank) {
    return rank.place.empty() ? std::string() : cat(" in ", rank.place);
}

StatusLine missing_line(const StatusNode& node, const StatusRank& rank) {
    return {cat("rank ", rank.rank, " on ", node.host, " is missing", in_place(rank), ", idle for ",
                describe(Duration(1ms) * rank.idle_ms),
                rank.operation.empty() ? std::string() : cat(", after ", rank.operation)),
            LineStyle::attention};
}

std::string job_columns(std::size_t columns, std::string_view id, std::string_view phase, std::string_view round,
                        std::string_view nodes, std::string_view step, std::string_view restarted) {
    const auto id_columns = columns > 60 ? columns - 52 : 8;
    return cat(padded(id, id_columns), " ", padded(phase, 9), " ", padded(round, 6), " ", padded(nodes, 12), " ",
               padded(step, 10), " ", padded(restarted, 9));
}

std::string node_columns(std::size_t columns, std::string_view host, std::string_view pid, std::string_view place,
                         std::string_view ranks, std::string_view heard) {
    const auto host_columns = columns > 60 ? columns - 46 : 14;
    return cat(padded(host, host_columns), " ", padded(pid, 8), " ", padded(place, 10), " ", padded(ranks, 12), " ",
               padded(heard, 10));
}

/// 0 is the worst.
int order_of(const StatusNode& node) {
    const std::string_view place = node.place;
    if (place == "lost") return 0;
    if (!node.is_connected) return 1;
    for (const auto& rank : node.ranks)
        if (rank.is_overdue) return 2;
    if (place == "draining") return 3;
    if (node.is_left_out) return 4;
    return node.ranks.empty() ? 6 : 5;
}

}  // namespace

void append(std::vector<StatusLine>& lines, std::vector<StatusLine> more) {
    std::ranges::move(more, std::back_inserter(lines));
}

std::vector<StatusLine> daemon_lines(const StatusFacts& facts) {
    std::vector<StatusLine> lines;
    if (facts.stands_by)
        lines.push_back({facts.leader.empty() ? "this daemon stands by, and knows no leader"
                                              : cat("this daemon stands by; ask the leader, ", facts.leader),
                         LineStyle::attention});
    if (!facts.trouble.empty())
        lines.push_back({cat("the daemon cannot write its state: ", facts.trouble), LineStyle::attention});
    return lines;
}

std::vector<StatusLine> waiting_lines(const std::vector<const StatusNode*>& nodes) {
    std::vector<StatusLine> lines;
    std::size_t missing_count = 0;
    std::map<std::string, std::vector<std::uint32_t>> waiting;
    for (const auto* node : nodes)
        for (const auto& rank : node->ranks) {
            if (!rank.is_overdue)
                waiting[cat(" in ", rank.operation, in_place(rank))].push_back(static_cast<std::uint32_t>(rank.rank));
            else if (++missing_count <= missing_ranks_told_max)
                lines.push_back(missing_line(*node, rank));
        }
    if (missing_count > missing_ranks_told_max)
        lines.push_back(
            {cat("... and ", missing_count - missing_ranks_told_max, " more missing ranks"), LineStyle::attention});
    for (auto& [where, ranks] : waiting) {
        std::ranges::sort(ranks);
        lines.push_back({ranks.size() == 1 ? cat("rank ", ranks[0], " waits", where)
                                           : cat("ranks ", describe_ranges(ranks), " wait", where)});
    }
    return lines;
}

/// "standby processes: 16 on 2 nodes, 3520 MiB of memory"; empty: there are none.
std::string standby_text(const StatusJob& job) {
    std::int64_t count = 0, bytes = 0, nodes = 0;
    for (const auto& node : job.nodes) {
        count += node.standby_count;
        bytes += node.standby_bytes;
        nodes += node.standby_count > 0 ? 1 : 0;
    }
    if (count == 0) return {};
    return cat("standby processes: ", count, " on ", nodes, nodes == 1 ? " node, " : " nodes, ", bytes >> 20,
               " MiB of memory");
}

/// "GPU use: 91 % on average of 16 GPUs, lowest 3 % (GPU 5 of gpu07)"; empty: it is not known.
static std::string gpus_text(const StatusJob& job) {
    std::int64_t count = 0, sum = 0;
    const StatusNode* at = nullptr;
    const StatusGpu* lowest = nullptr;
    for (const auto& node : job.nodes)
        for (const auto& gpu : node.gpus) {
            ++count;
            sum += gpu.busy_percent;
            if (lowest != nullptr && lowest->busy_percent <= gpu.busy_percent) continue;
            lowest = &gpu;
            at = &node;
        }
    if (lowest == nullptr) return {};
    return cat("GPU use: ", sum / count, " % on average of ", count, count == 1 ? " GPU" : " GPUs", ", lowest ",
               lowest->busy_percent, " % (GPU ", lowest->index, " of ", at->host, ')');
}

/// "checkpoints: step 40 in memory (12 s ago), step 30 shared (5 min ago)".
static std::string checkpoints_line(const std::vector<StatusCheckpoint>& checkpoints) {
    std::vector<std::string> told;
    for (const auto& [tier, step, age_s] : checkpoints)
        told.push_back(cat("step ", step, ' ',
                           tier == "memory"      ? "in memory"
                           : tier == "neighbour" ? "in neighbours' memory"
                           : tier == "local"     ? "on local disks"
                           : tier == "shared"    ? "in the checkpoint directory"
                                                 : tier,
                           age_s < 0    ? ""
                           : age_s == 0 ? " (now)"
                                        : cat(" (", describe(Duration(1s) * age_s), " ago)")));
    return cat("checkpoints: ", join(told, ", "));
}

std::vector<StatusLine> job_lines(const StatusJob& job) {
    std::vector<StatusLine> lines;
    lines.push_back(
        {cat("job ", job.id, ": ", job.phase, job.round < 0 ? std::string() : cat(", round ", job.round), ", ",
             running_nodes(job), " of ", nodes_wanted(job), job.phase == "running" ? " nodes" : " nodes in the round",
             job.step < 0 ? std::string() : cat(", step ", job.step), ", ", restarts(job), " restarts used"),
         style_of(job)});
    if (!job.waiting_for.empty()) lines.push_back({cat("waiting for ", job.waiting_for), LineStyle::attention});
    if (!job.checkpoints.empty())
        lines.push_back({checkpoints_line(job.checkpoints)});
    else if (job.checkpoint_step >= 0)
        lines.push_back({cat("newest checkpoint at the end of the last round: step ", job.checkpoint_step)});
    if (job.phase == "running" && job.samples_per_second > 0)
        lines.push_back({cat("samples/s: ", one_decimal(job.samples_per_second), " in the last steps")});
    if (!job.goodput.empty()) lines.push_back({cat("time: ", job.goodput)});
    for (auto& text : {gpus_text(job), standby_text(job)})
        if (!text.empty()) lines.push_back({text});
    append(lines, waiting_lines(worst_first(job.nodes)));
    return lines;
}

StatusLine job_heading(std::size_t columns) {
    return {job_columns(columns, "JOB", "PHASE", "ROUND", "NODES", "STEP", "RESTARTS"), LineStyle::heading};
}

StatusLine job_row(const StatusJob& job, std::size_t columns) {
    return {job_columns(columns, job.id, job.phase, number_or_dash(job.round),
                        cat(running_nodes(job), "/", nodes_wanted(job)), number_or_dash(job.step), restarts(job)),
            style_of(job)};
}

StatusLine node_heading(std::size_t columns) {
    return {node_columns(columns, "NODE", "PID", "PLACE", "RANKS", "HEARD"), LineStyle::heading};
}

StatusLine node_row(const StatusNode& node, std::size_t columns) {
    return {node_columns(columns, node.host, cat(node.pid), node.is_left_out ? std::string("left out") : node.place,
                         ranks_of(node), heard_of(node)),
            is_in_trouble(node) ? LineStyle::attention : LineStyle::plain};
}

std::string ranks_of(const StatusNode& node) {
    if (node.rank_base < 0 || node.slots <= 0) return "-";
    return node.slots == 1 ? cat(node.rank_base) : cat(node.rank_base, "-", node.rank_base + node.slots - 1);
}

std::string heard_of(const StatusNode& node) {
    return node.is_connected ? cat(node.silent_ms / 1000, " s ago") : "no link";
}

std::vector<const StatusNode*> worst_first(const std::vector<StatusNode>& nodes) {
    // A sort asks for a node's key a dozen times.
    std::vector<std::tuple<int, std::int64_t, const StatusNode*>> keys;
    keys.reserve(nodes.size());
    for (const auto& node : nodes) keys.emplace_back(order_of(node), node.group_rank, &node);
    std::ranges::sort(keys);
    std::vector<const StatusNode*> all;
    all.reserve(nodes.size());
    for (const auto& [order, group_rank, node] : keys) all.push_back(node);
    return all;
}

bool is_in_trouble(const StatusNode& node) {
    return order_of(node) < 4;
}

bool has_trouble(const StatusJob& job) {
    return std::ranges::any_of(job.nodes, is_in_trouble);
}

std::vector<StatusLine> status_lines(const StatusFacts& facts, std::string_view job, std::size_t columns) {
    auto lines = daemon_lines(facts);
    const auto* shown = facts.jobs.size() == 1 && job.empty() ? &facts.jobs[0] : find_job(facts, job);
    // No wider than the longest name needs: nobody looks across 100 blanks.
    std::size_t longest = 20;
    if (shown == nullptr)
        for (const auto& one : facts.jobs) longest = std::max(longest, columns_of(one.id));
    else
        for (const auto& node : shown->nodes) longest = std::max(longest, columns_of(node.host));
    const auto width = std::min(columns, longest + 52);
    if (shown != nullptr) {
        append(lines, job_lines(*shown));
        if (!shown->nodes.empty()) lines.push_back(node_heading(width));
        for (const auto* node : worst_first(shown->nodes)) lines.push_back(node_row(*node, width));
    } else if (facts.jobs.empty()) {
        lines.push_back({"no jobs"});
    } else {
        lines.push_back(job_heading(width));
        for (const auto& one : facts.jobs) lines.push_back(job_row(one, width));
    }
    for (auto& line : lines) {
        line.text = cut_to(line.text, columns);
        line.text.resize(line.text.find_last_not_of(' ') + 1);
    }
    return lines;
}

StatusLine no_answer_line(std::string_view endpoint, Duration since, std::string_view why) {
    const auto whole = std::chrono::floor<std::chrono::seconds>(since);
    return {cat("no answer from ", endpoint, " for ", describe(whole), ": ", printable_line(why)),
            LineStyle::attention};
}

const StatusJob* find_job(const StatusFacts& facts, std::string_view job) {
    const auto found = std::ranges::find(facts.jobs, job, &StatusJob::id);
    return found == facts.jobs.end() ? nullptr : &*found;
}

std::string unknown_job(const StatusFacts& facts, std::string_view job) {
    std::vector<std::string> ids;
    for (const auto& one : facts.jobs) ids.push_back(one.id);
    return cat(job.empty() ? "name a job" : cat("no job '", printable_line(job), "'"), "; ",
               ids.empty() ? "this daemon has no jobs" : "jobs: ", join(ids, ", "));
}

}  // namespace muster::launcher
