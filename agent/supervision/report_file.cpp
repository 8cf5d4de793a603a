#include "agent/supervision/report_file.h"

#include <nlohmann/json.hpp>

#include "agent/diagnosis/suspect.h"
#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using json = nlohmann::ordered_json;

struct EndAsJson {
    json operator()(const Exited& end) const { return {{"type", "exit"}, {"code", end.code}}; }
    json operator()(const Signaled& end) const {
        return {{"type", "signal"},
                {"signal", end.signal},
                {"name", signal_name(end.signal)},
                {"core_dumped", end.core_dumped}};
    }
    json operator()(const NotStarted& end) const {
        return {{"type", "not_started"}, {"errno", end.error_number}, {"stage", end.stage}};
    }
};

json as_json(const Failure& failure) {
    json out{{"kind", name(failure.kind)}, {"host", failure.host}, {"group_rank", failure.group_rank}};
    if (failure.rank >= 0) {
        out["role"] = failure.role;
        out["rank"] = failure.rank;
        out["local_rank"] = failure.local_rank;
        out["pid"] = failure.pid;
    } else if (failure.pid > 0) {
        out["agent_pid"] = failure.pid;
    }
    if (failure.kind != FailureKind::node_lost) {
        out["end"] = std::visit(EndAsJson{}, failure.end);
        out["end"]["text"] = describe(failure.end);
    }
    out["cause"] = {{"kind", muster::name(failure.cause.kind)},
                    {"text", failure.cause.text},
                    {"core_file", failure.cause.core_file}};
    out["message"] = failure.message;
    out["stderr_tail"] = failure.stderr_tail;
    out["error_file"] = failure.error_file;
    out["log_directory"] = failure.log_directory;
    out["wall_time_s"] = failure.wall_time_s;
    out["uncertainty_ns"] = failure.uncertainty_ns;
    return out;
}

json as_json(const ActivityGroup& group) {
    const auto& one = group.first;
    return {{"ranks", group.ranks}, {"count", group.count},
            {"rank", one.rank},     {"host", group.host},
            {"pid", one.pid},       {"idle_s", one.idle_ms / 1000.0},
            {"state", one.state},   {"operation", one.operation},
            {"inside", one.inside}, {"place", one.place}};
}

struct Outcome {
    json& out;
    const ReportContext& context;

    void tell(std::string_view outcome, std::string_view why) const {
        out["outcome"] = outcome;
        out["why"] = why;
    }
    void operator()(const JobSucceeded& end) const {
        tell("succeeded", why_idle(end.part, end.unhealthy, context));
        out["part"] = enumerator_name(end.part);
        if (!end.unhealthy.empty()) out["unhealthy"] = end.unhealthy;
        if (!end.goodput.empty()) out["goodput"] = end.goodput;
    }
    void operator()(const JobFailed& failed) const {
        const auto& end = failed.report;
        tell(end.outcome == native::JobOutcome::crash_loop ? "crash_loop" : "failed", end.why);
        const auto& verdict = end.verdict;
        out["part"] = enumerator_name(failed.part);
        if (!failed.unhealthy.empty()) out["unhealthy"] = failed.unhealthy;
        out["round"] = verdict.round;
        out["restart_count"] = end.restart_count;
        if (!end.goodput.empty()) out["goodput"] = end.goodput;
        if (verdict.first) out["first"] = as_json(*verdict.first);
        out["groups"] = json::array();
        for (const auto& group : verdict.groups)
            out["groups"].push_back(
                {{"kind", name(group.kind)}, {"error", group.error}, {"ranks", group.ranks}, {"count", group.count}});
        out["whereabouts"] = json::array();
        for (const auto& group : verdict.activities) out["whereabouts"].push_back(as_json(group));
        if (const auto suspect = suspect_of(verdict)) {
            out["suspect"] = as_json(suspect->group);
            out["suspect"]["why"] = suspect->why;
        }
        out["other_failure_count"] = verdict.other_failure_count;
        out["stopped_count"] = verdict.stopped_count;
        out["alike_at_start"] = failed_alike_at_start(verdict);
    }
    void operator()(const Cancelled& cancelled) const {
        tell("cancelled", cat("stopped by ", signal_name(cancelled.signal),
                              cancelled.killed.empty() ? "" : cat("; ", cancelled.killed)));
    }
    void operator()(const NoRendezvous& lost) const {
        tell("no_rendezvous", lost.why);
        if (!lost.last_end.empty()) out["last_end"] = lost.last_end;
    }
    void operator()(const JoinRefused& refused) const { tell("refused", refused.refusal.why); }
    void operator()(const AgentFailed& failed) const { tell("agent_failed", failed.why); }
    void operator()(const SetUpFailed& failed) const { tell("set_up_failed", failed.why); }
    void operator()(const Drained& drained) const { tell("drained", drained.why); }
};

json head(const ReportContext& context, int exit_code) {
    return {{"format", 1},   {"job", context.job},    {"host", context.host}, {"auth", context.authentication},
            {"outcome", ""}, {"exit_code", exit_code}};
}

json described(const Ending& ending, const ReportContext& context, int exit_code) {
    json file = head(context, exit_code);
    std::visit(Outcome{file, context}, ending);
    if (!context.signal_reason.empty()) file["signal_reason"] = context.signal_reason;
    if (!context.unsaved.empty()) file["unsaved"] = context.unsaved;
    if (const auto& standbys = context.standbys; standbys.count > 0)
        file["standbys"] = {{"count", standbys.count}, {"memory_bytes", standbys.memory_bytes}};
    if (!context.unsaved.empty() && std::holds_alternative<JobSucceeded>(ending))
        Outcome{file, context}.tell("unsaved", context.unsaved);
    return file;
}

std::string written(const json& file) {
    return file.dump(2, ' ', false, json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string report_file(const Ending& ending, const ReportContext& context, int exit_code, std::string_view text) {
    json file = described(ending, context, exit_code);
    file["text"] = text;
    return written(file);
}

std::string outcome(const Ending& ending, const ReportContext& context) {
    return described(ending, context, 0)["outcome"];
}

std::string report_file(const ReportContext& context, int exit_code, std::string_view why) {
    json file = head(context, exit_code);
    Outcome{file, context}.tell("not_launched", why);
    file["text"] = cat(context.program, ": ", why, '\n');
    return written(file);
}

}  // namespace muster::agent
