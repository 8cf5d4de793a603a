#include "agent/supervision/failure_report.h"

#include <chrono>

#include "agent/diagnosis/suspect.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/text/utc.h"

namespace muster::agent {

namespace {

/// Explains exit codes and signals that users look up. describe(WorkerEnd) has the rest.
std::string_view meaning(const WorkerEnd& end) {
    if (const auto* signaled = std::get_if<Signaled>(&end)) {
        switch (signaled->signal) {
            case 4: return "an illegal instruction: this CPU does not support it";
            case 6: return "the program aborted itself: a failed check or an uncaught C++ exception";
            case 7: return "a bus error, often caused by a full /dev/shm";
            case 9: return "killed from outside, usually because memory ran out: see dmesg and the memory limit";
            case 11: return "an invalid memory access (segmentation fault)";
            case 15: return "sent from outside the job (a person, a scheduler or another program)";
            case 25: return "a file grew beyond the limit on file sizes: raise ulimit -f (RLIMIT_FSIZE)";
            default: return {};
        }
    }
    if (const auto* exited = std::get_if<Exited>(&end)) {
        switch (exited->code) {
            case 75: return "the worker's own exit code, passed through: 75 means 'retry'";
            case never_again_code: return "the worker's own exit code: do not start it again";
            case 78: return "the worker's own exit code, passed through: 78 means 'configuration error'";
            default: return {};
        }
    }
    return advice_on_shortage(std::get<NotStarted>(end).error_number);
}

std::string who(const Failure& failure, const ReportContext& context) {
    const std::string_view here = failure.host == context.host ? " (this host)" : "";
    if (failure.rank < 0)
        return cat("node ", failure.host, here, failure.kind == FailureKind::node_lost ? " was lost" : " failed",
                   failure.pid > 0 ? cat(" (its agent's pid was ", failure.pid, ")") : std::string());
    return cat("rank ", failure.rank, " (local rank ", failure.local_rank, ") on ", failure.host, here,
               failure.pid > 0 ? cat(", pid ", failure.pid) : std::string());
}

std::string_view last_line(std::string_view text) {
    text = trim(text);
    return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

/// Each line of `text` after `indent`; only the last `lines_max`, and the number of lines left out.
void append_indented(std::string& out, std::string_view text, std::string_view indent, std::size_t lines_max) {
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty()) return;
    const auto lines = split(text, '\n');
    const std::size_t skipped = lines.size() > lines_max ? lines.size() - lines_max : 0;
    if (skipped > 0) out += cat(indent, "(", skipped, skipped == 1 ? " line" : " lines", " before)\n");
    for (std::size_t i = skipped; i < lines.size(); ++i) {
        // A terminal shows only the text after a progress bar's last carriage return.
        const auto line = lines[i].ends_with('\r') ? lines[i].substr(0, lines[i].size() - 1) : lines[i];
        out += cat(indent, line.substr(line.rfind('\r') + 1), '\n');  // npos + 1 is 0
    }
}

void append_first(std::string& out, const Failure& first, const ReportContext& context) {
    out += cat("  first failure: ", who(first, context));
    if (first.rank >= 0) {
        out += cat(": ", describe(first.end));
        const auto why = first.cause.text.empty() ? meaning(first.end) : std::string_view(first.cause.text);
        if (!why.empty()) out += cat(" - ", why);
    }
    out += '\n';
    // For a lost node, the daemon has the time of its last message.
    const bool silent = first.kind == FailureKind::node_lost && first.pid > 0;
    const auto when = first.wall_time_s <= 0
                          ? std::string()
                          : cat(silent ? "  last heard at " : "  at ",
                                utc_text(std::chrono::seconds(first.wall_time_s), "%Y-%m-%d %H:%M:%S UTC"),
                                silent ? " by the daemon's clock\n" : " by its host's clock\n");
    if (first.rank >= 0 && first.role != "default" && !first.role.empty()) out += cat("  role: ", first.role, '\n');
    if (first.rank < 0) {
        append_indented(out, first.message, "    ", context.stderr_lines_max);
        out += when;
        return;
    }
    out += when;
    if (!first.cause.core_file.empty()) {
        const bool is_path = first.cause.core_file.starts_with('/');
        out += cat("  core dump: ", first.cause.core_file, is_path ? cat(" on ", first.host) : std::string(), '\n');
    }
    // The error file has the exception. stderr usually ends with the same text, so it is printed once.
    if (!first.message.empty()) {
        out +=
            first.error_file.empty() ? "  why:\n" : cat("  error file: ", first.error_file, " on ", first.host, '\n');
        append_indented(out, first.message, "    ", context.stderr_lines_max);
    }
    const auto exception = last_line(first.message);
    const bool told = !exception.empty() && first.stderr_tail.find(exception) != std::string::npos;
    if (!first.stderr_tail.empty() && !told) {
        out += "  last lines of its stderr:\n";
        append_indented(out, first.stderr_tail, "    ", context.stderr_lines_max);
    }
    if (!first.log_directory.empty()) out += cat("  logs: ", first.log_directory, " on ", first.host, '\n');
}

/// "rank 5", "ranks 0-7,12 (9 workers)".
std::string ranks_of(const FailureGroup& group) {
    if (group.count == 1) return cat("rank ", group.ranks);
    return cat("ranks ", group.ranks, " (", group.count, " workers)");
}

/// One line per distinct error. The first group's first error has been printed already.
void append_groups(std::string& out, const Verdict& verdict) {
    constexpr std::size_t listed_max = 8;
    for (std::size_t i = 0; i < verdict.groups.size() && i < listed_max; ++i) {
        const auto& group = verdict.groups[i];
        if (group.ranks.empty()) {
            if (i > 0) out += cat("    ", group.error, '\n');
        } else if (i > 0) {
            out += cat("    ", ranks_of(group), ": ", group.error, '\n');
        } else if (group.count > 1) {
            out += cat("    ", ranks_of(group), ": the same error\n");
        }
    }
    if (verdict.groups.size() > listed_max)
        out += cat("    and ", verdict.groups.size() - listed_max, " more kinds of errors\n");
}

void append_others(std::string& out, const Verdict& verdict) {
    if (verdict.other_failure_count > 0) {
        out += cat("  ", verdict.other_failure_count, verdict.other_failure_count == 1 ? " other" : " others",
                   " failed after it\n");
        append_groups(out, verdict);
    }
    if (verdict.stopped_count > 0)
        out += cat("  ", verdict.stopped_count, verdict.stopped_count == 1 ? " worker was" : " workers were",
                   " stopped by muster because of it\n");
}

struct Reporter {
    const ReportContext& context;

    [[nodiscard]] std::string job() const { return context.job_is_named ? cat("job ", context.job) : "the job"; }
    /// A line about this node.
    [[nodiscard]] std::string line(std::string_view text) const {
        return cat(context.program, ": ", context.job_is_named ? cat(job(), ": ") : std::string(), text, '\n');
    }

    std::string operator()(const JobSucceeded& end) const {
        if (end.part != NodePart::ran || !end.unhealthy.empty())
            return cat(context.program, ": job '", context.job, "' succeeded; ",
                       why_idle(end.part, end.unhealthy, context), '\n');
        return context.unsaved.empty()
                   ? std::string()
                   : line(
                         "every worker exited 0, but the newest step was not written to disk; repair the disk or free "
                         "space, and start the job again: it resumes from the last complete checkpoint");
    }
    std::string operator()(const JobFailed& failed) const {
        const auto& end = failed.report;
        if (end.verdict.first && saved_and_left(end.verdict.first->end)) {
            return cat(context.program, ": ", job(), " is not over: ", end.why,
                       context.signal_reason.empty() ? "" : cat(" (", context.signal_reason, ")"),
                       "; start it again to continue\n");
        }
        std::string out = cat(context.program, ": ", job(), " failed", end.why.empty() ? "" : ": ", end.why, '\n');
        if (end.verdict.first) append_first(out, *end.verdict.first, context);
        append_others(out, end.verdict);
        for (const auto& line : lines_of(end.verdict.activities)) out += cat("  ", line, '\n');
        if (const auto suspect = suspect_of(end.verdict)) out += cat("  look first at ", suspect->text(), '\n');
        if (failed_alike_at_start(end.verdict))
            out +=
                "  every rank failed with this error before its first step: check the program, its options and its "
                "environment\n";
        if (!end.goodput.empty()) out += cat("  time: ", end.goodput, '\n');
        if (const auto idle = why_idle(failed.part, failed.unhealthy, context); !idle.empty())
            out += cat("  ", idle, '\n');
        return out;
    }
    std::string operator()(const Cancelled& cancelled) const {
        return line(cat("stopped by ", signal_name(cancelled.signal),
                        context.signal_reason.empty() ? "" : cat(" (", context.signal_reason, ")"),
                        "; this node has left", cancelled.killed.empty() ? "" : cat("; ", cancelled.killed)));
    }
    std::string operator()(const NoRendezvous& lost) const {
        return cat(line(cat("no rendezvous: ", lost.why)),
                   lost.last_end.empty() ? std::string() : cat("  before: ", lost.last_end, '\n'));
    }
    std::string operator()(const JoinRefused& refused) const {
        return line(cat("this node was refused: ", refused.refusal.why));
    }
    std::string operator()(const AgentFailed& failed) const { return line(failed.why); }
    std::string operator()(const SetUpFailed& failed) const { return line(failed.why); }
    std::string operator()(const Drained& drained) const {
        return line(cat("this node was drained and has left the job: ", drained.why));
    }
};

}  // namespace

bool failed_alike_at_start(const Verdict& verdict) {
    const auto& first = verdict.first;
    return first && first->rank >= 0 && first->early && first->cause.kind != CauseKind::disk_full &&
           verdict.stopped_count == 0 && verdict.groups.size() == 1 && verdict.groups[0].count > 1 &&
           verdict.groups[0].count == verdict.other_failure_count + 1;
}

std::string why_idle(NodePart part, const std::string& unhealthy, const ReportContext& context) {
    if (!unhealthy.empty())
        return cat("this node was parked ", part == NodePart::ran ? "at the end" : "and did not run ",
                   part == NodePart::ran ? "" : context.entry, ", because its health check failed: ", unhealthy);
    if (part == NodePart::ran) return {};
    return cat(part == NodePart::spare ? "this node was a spare" : "this node joined after its end",
               " and did not run ", context.entry);
}

std::string report(const Ending& ending, const ReportContext& context) {
    const auto text = std::visit(Reporter{context}, ending);
    return printable(context.unsaved.empty() ? text : cat(text, "  checkpoint: ", context.unsaved, '\n'));
}

}  // namespace muster::agent
