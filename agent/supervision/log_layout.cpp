#include "agent/supervision/log_layout.h"

#include "agent/supervision/macros.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/text/text.h"

#include <algorithm>

namespace muster::agent {

namespace {

StreamSet chosen(const std::vector<StreamSet>& choices, std::uint32_t local_rank) {
    return local_rank < choices.size() ? choices[local_rank] : StreamSet{};
}

std::string tee_prefix(const LogChoices& choices, const WorkerPlace& place) {
    if (choices.prefix_template.empty()) return cat('[', place.role, place.local_rank, "]:");
    return substitute_macros(
        choices.prefix_template,
        {{"role_name", place.role}, {"rank", cat(place.rank)}, {"local_rank", cat(place.local_rank)}});
}

std::string journal_fields(const WorkerPlace& place, bool is_stderr) {
    return journal_field("MUSTER_ROUND", cat(place.round)) + journal_field("MUSTER_RANK", cat(place.rank)) +
           journal_field("MUSTER_LOCAL_RANK", cat(place.local_rank)) +
           journal_field("MUSTER_STREAM", is_stderr ? "stderr" : "stdout");
}

/// What one stream's plan is made from.
struct StreamRequest {
    bool redirected;  ///< -r or -t names it
    bool teed;
    bool shown;  ///< the local-ranks filter lets it through
    bool is_stderr;
    std::string file;
    std::string filtered_file;
};

StreamPlan plan_stream(const LogChoices& choices, const WorkerPlace& place, const StreamRequest& wish) {
    StreamPlan plan;
    const std::string host = choices.host_prefix ? cat('[', place.host, ':', place.rank, "] ") : "";
    plan.keep_tail = wish.is_stderr;
    if (wish.redirected) plan.file = wish.file;
    plan.console = wish.shown &&
                   (wish.teed || (!wish.redirected && (wish.is_stderr || choices.host_prefix || choices.to_journal)));
    const bool folded = choices.fold_among > 0 && wish.shown && !choices.to_journal && (wish.teed || !wish.redirected);
    if (folded) plan.console = true;
    plan.inherit = wish.shown && !wish.redirected && !plan.console;
    if (wish.teed && wish.shown) {
        plan.prefix = host.empty() ? tee_prefix(choices, place) : host;
        plan.filters = wish.is_stderr ? choices.stderr_filters : choices.stdout_filters;
        if (!plan.filters.empty()) plan.filtered_file = wish.filtered_file;
    } else if (plan.console) {
        plan.prefix = host.empty() && folded ? cat('[', place.rank, "]: ") : host;
        // A folded stdout as well: Python writes lines at once to a terminal and keeps them back from a pipe.
        plan.terminal =
            host.empty() && (wish.is_stderr ? choices.stderr_is_terminal : folded && choices.stdout_is_terminal);
    }
    const auto& filter = choices.local_ranks_filter;
    const auto among = filter.empty() ? choices.fold_among : static_cast<std::uint32_t>(filter.size());
    if (folded) plan.fold = StreamPlan::Fold{.rank = place.rank, .among = among};
    if (plan.console && choices.to_journal) plan.journal_fields = journal_fields(place, wish.is_stderr);
    return plan;
}

}  // namespace

bool writes_files(const LogChoices& choices) {
    const auto goes = [](const StreamSet& streams) { return streams.out || streams.err; };
    return !choices.none && (std::ranges::any_of(choices.redirects, goes) || std::ranges::any_of(choices.tee, goes));
}

std::string attempt_directory(const std::string& run_directory, std::uint32_t restart_count) {
    return run_directory.empty() ? "" : cat(run_directory, "/attempt_", restart_count);
}

WorkerLogs worker_logs(const LogChoices& choices, const std::string& attempt, const WorkerPlace& place) {
    WorkerLogs logs;
    const bool files = !choices.none && !attempt.empty();
    const auto& filter = choices.local_ranks_filter;
    const bool shown =
        !files || filter.empty() || std::find(filter.begin(), filter.end(), place.local_rank) != filter.end();
    if (files) {
        logs.directory = cat(attempt, '/', place.local_rank);
        logs.error_file = cat(logs.directory, "/error.json");
    }
    const auto redirect = files ? chosen(choices.redirects, place.local_rank) : StreamSet{};
    const auto tee = files ? chosen(choices.tee, place.local_rank) : StreamSet{};
    const auto plan = [&](bool redirected, bool teed, bool is_stderr) {
        const std::string_view name = is_stderr ? "stderr" : "stdout";
        return plan_stream(choices, place,
                           {.redirected = redirected || teed,
                            .teed = teed,
                            .shown = shown,
                            .is_stderr = is_stderr,
                            .file = cat(logs.directory, "/", name, ".log"),
                            .filtered_file = cat(attempt, "/filtered_", name, ".log")});
    };
    logs.stdout_plan = plan(redirect.out, tee.out, false);
    logs.stderr_plan = plan(redirect.err, tee.err, true);
    return logs;
}

}  // namespace muster::agent
