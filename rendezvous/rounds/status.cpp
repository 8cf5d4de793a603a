#include "rendezvous/rounds/status.h"

#include <nlohmann/json.hpp>

namespace muster::rendezvous {

namespace {

nlohmann::json describe(const Member& member, Instant now) {
    using std::chrono::milliseconds;
    nlohmann::json out{{"host", member.node.host},
                       {"pid", member.node.pid},
                       {"place", place_name(member)},
                       {"slots", member.join.slots},
                       {"role", member.join.role},
                       {"connected", member.connected()},
                       {"silent_ms", std::chrono::duration_cast<milliseconds>(now - member.last_received).count()}};
    if (member.round != no_round) out["group_rank"] = member.group_rank;
    if (member.rank_base >= 0) out["rank_base"] = member.rank_base;
    if (member.excluded) out["left_out"] = true;
    for (const auto& worker : member.workers_seen) {
        if (worker.pace == native::WorkerPace::usual) continue;
        const auto* pace = worker.pace == native::WorkerPace::overdue ? "overdue" : "waiting";
        out[pace].push_back({{"rank", worker.at.rank},
                             {"idle_ms", worker.at.idle_ms},
                             {"operation", worker.at.operation},
                             {"place", worker.at.place}});
    }
    return out;
}

/// In seconds.
nlohmann::json describe(const GoodputLedger& ledger, Instant now) {
    const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
    const auto totals = ledger.totals(now);
    nlohmann::json out{{"text", ledger.sentence(now)},
                       {"wall_clock", seconds(totals.wall_clock)},
                       {"pending", seconds(totals.pending)},
                       {"lost_work", seconds(totals.lost_work)},
                       {"lost_steps", totals.lost_step_count}};
    for (std::size_t i = 0; i < time_bucket_count; ++i)
        out[std::string(name(static_cast<TimeBucket>(i)))] = seconds(totals.buckets[i]);
    return out;
}

/// What is known of them.
void add_steps(nlohmann::json& out, const StepSummary& steps) {
    const auto add = [&out](const char* name, const std::optional<double>& value) {
        if (value) out[name] = *value;
    };
    add("step_seconds", steps.step_seconds);
    add("samples_per_second", steps.samples_per_second);
    add("exposed_communication", steps.exposed);
    add("straggler_cost", steps.straggler_cost);
    if (steps.slowest_rank >= 0) out["slowest_rank"] = steps.slowest_rank;
}

nlohmann::json describe(const Job& job, Instant now) {
    nlohmann::json out{{"id", job.id()},
                       {"phase", phase_name(job)},
                       {"round", job.round().number},
                       {"restarts_used", job.restarts_used()},
                       {"restarts_max", job.terms().restarts_max},
                       {"nodes_min", job.terms().nodes_min},
                       {"nodes_max", job.terms().nodes_max},
                       {"waiting_for", job.waiting_for(now)},
                       {"goodput", describe(job.goodput(), now)},
                       {"nodes", nlohmann::json::array()}};
    if (const auto step = job.slowest_step(); step >= 0) out["step"] = step;
    add_steps(out, job.steps().summary());
    if (const auto step = job.checkpoint_step(); step >= 0) out["checkpoint_step"] = step;
    for (const auto& [incarnation, member] : job.members())
        if (!member.join.expected_hosts.empty()) out["expected_hosts"] = member.join.expected_hosts;
    for (const auto& [incarnation, member] : job.members()) out["nodes"].push_back(describe(member, now));
    return out;
}

}  // namespace

std::string_view place_name(const Member& member) {
    if (member.parked_at > 0) return "parked";
    switch (member.place) {
        case Place::waiting: return "waiting";
        case Place::running: return "running";
        case Place::succeeded: return "succeeded";
        case Place::draining: return "draining";
        case Place::lost: return "lost";
    }
    return "unknown";
}

std::string_view phase_name(const Job& job) {
    if (job.ending()) return "over";
    if (job.round().running()) return "running";
    if (job.round().final) return "ending";
    for (const auto& [incarnation, member] : job.members())
        if (member.place == Place::draining || member.place == Place::lost) return "draining";
    return "gathering";
}

std::string status_json(const std::vector<const Job*>& jobs, const ServerConfig& config, Instant now) {
    nlohmann::json out{{"auth", config.authentication}, {"jobs", nlohmann::json::array()}};
    if (!config.embedded_for.empty()) out["embedded"] = true;
    for (const auto* job : jobs) out["jobs"].push_back(describe(*job, now));
    return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace muster::rendezvous
