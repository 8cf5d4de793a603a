#include "rendezvous/rounds/status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/assignment.h"
#include "rendezvous/rounds/missing_hosts.h"

namespace muster::rendezvous {

namespace {

/// The shortest silence that is news. A healthy agent is heard at least each twentieth of the lease.
Duration silence_shown(const Job& job) {
    return std::max<Duration>(3s, 1ms * job.terms().lease_ms / 4);
}

std::string text_of(const nlohmann::json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json describe(const Member& member) {
    nlohmann::json out{{"host", member.node.host},   {"pid", member.node.pid},   {"place", place_name(member)},
                       {"slots", member.join.slots}, {"role", member.join.role}, {"connected", member.connected()}};
    if (member.round != no_round && member.rank_base >= 0) out["group_rank"] = member.group_rank;
    if (member.rank_base >= 0) out["rank_base"] = member.rank_base;
    // The minimum may need it all the same: then it is running.
    if (member.place == Place::waiting && (member.set_aside() || member.health == Health::parked))
        out["left_out"] = true;
    if (member.health != Health::fit) out["unhealthy"] = member.join.unhealthy;
    if (const auto& standbys = member.standbys; standbys.count > 0)
        out["standbys"] = {{"count", standbys.count}, {"memory_bytes", standbys.memory_bytes}};
    if (member.place == Place::running)
        for (const auto& gpu : member.gpus)
            out["gpus"].push_back({{"index", gpu.index}, {"busy_percent", gpu.percent}});
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
nlohmann::json describe(const GoodputLedger::Totals& totals) {
    const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
    nlohmann::json out{{"wall_clock", seconds(totals.wall_clock)},
                       {"pending", seconds(totals.pending)},
                       {"lost_work", seconds(totals.lost_work)},
                       {"lost_steps", totals.lost_step_count}};
    for (std::size_t i = 0; i < totals.bucket_count(); ++i) out[totals.name_of(i)] = seconds(totals.buckets[i]);
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

/// Without its nodes.
nlohmann::json describe(const Job& job, Instant now) {
    auto goodput = describe(job.goodput().totals(now));
    goodput["text"] = job.goodput().sentence(now);
    nlohmann::json out{{"id", job.id()},
                       {"phase", phase_name(job)},
                       {"round", job.round().number},
                       {"restarts_used", job.restarts_used()},
                       {"restarts_max", job.terms().restarts_max},
                       {"restarts_left", job.restarts_left(now)},
                       {"nodes_min", job.terms().nodes_min},
                       {"nodes_max", job.terms().nodes_max},
                       {"waiting_for", job.waiting_for(now)},
                       {"goodput", std::move(goodput)}};
    if (const auto step = job.slowest_step(); step >= 0) out["step"] = step;
    add_steps(out, job.steps().summary());
    if (const auto step = job.checkpoint_step(); step >= 0) out["checkpoint_step"] = step;
    for (const auto& tier : job.tiers().tiers()) {
        if (tier.step < 0) continue;
        auto& told = out["checkpoints"][std::string(tier.name)] = {{"step", tier.step}};
        if (tier.since) told["age_s"] = (now - *tier.since) / 1s;
    }
    for (const auto& [incarnation, member] : job.members())
        if (!member.join.expected_hosts.empty()) out["expected_hosts"] = member.join.expected_hosts;
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
    for (const auto* job : jobs) {
        auto& one = out["jobs"].emplace_back(describe(*job, now));
        one["nodes"] = nlohmann::json::array();
        for (const auto& [incarnation, member] : job->members()) {
            auto& node = one["nodes"].emplace_back(describe(member));
            node["silent_ms"] =
                std::chrono::duration_cast<std::chrono::milliseconds>(now - member.last_received).count();
        }
    }
    return text_of(out);
}

std::string agents_json(const Job& job) {
    nlohmann::json out{{"nodes", nlohmann::json::array()}, {"waiting_nodes", nlohmann::json::array()}};
    if (job.round().number != no_round) out["round"] = job.round().number;
    for (const auto& [incarnation, member] : job.members()) {
        // Its port accepts connections, and answers none before its round.
        if (member.place == Place::waiting) out["waiting_nodes"].push_back(cat(incarnation));
        if (member.place == Place::waiting || member.join.peer_port == 0) continue;
        out["nodes"].push_back({{"host", member.node.host},
                                {"pid", member.node.pid},
                                {"incarnation", cat(incarnation)},
                                {"address", peer_address(member)},
                                {"port", member.join.peer_port}});
    }
    // Without members it may also be one whose nodes start again.
    if (job.ending() && job.members().empty()) out["over"] = true;
    return text_of(out);
}

JobPieces job_pieces(const Job& job, Instant now, SeenNodes& seen) {
    auto facts = describe(job, now);
    facts.erase("expected_hosts");
    if (const auto missing = missing_hosts(job.members()); !missing.empty() && !job.ending())
        facts["missing_hosts"] = missing;
    JobPieces pieces{.job = text_of(facts), .nodes = {}};
    const auto gone =
        seen.look_at(job.members(), now, silence_shown(job), [&](const Member& member, std::int64_t silent_s) {
            auto node = describe(member);
            if (silent_s >= 0) node["silent_s"] = silent_s;
            pieces.nodes.emplace_back(cat(member.node.incarnation), text_of(node));
        });
    for (const auto incarnation : gone) pieces.gone.push_back(cat(incarnation));
    return pieces;
}

std::string job_json(const JobSummary& past) {
    return text_of({{"id", past.id}, {"phase", past.phase}, {"goodput", describe(past.time)}});
}

JobPieces without_nodes(std::string job, Instant now, SeenNodes& seen) {
    JobPieces pieces{.job = std::move(job), .nodes = {}};
    for (const auto incarnation : seen.look_at({}, now, {}, {})) pieces.gone.push_back(cat(incarnation));
    return pieces;
}

// ---- of all jobs of a server ----

std::string Server::status_json(Instant now) const {
    return rendezvous::status_json(jobs(), config(), now);
}

std::string Server::daemon_json(Instant now) const {
    return rendezvous::status_json({}, config(), now);
}

std::optional<std::string> Server::agents_json(const std::string& job, Instant now) const {
    for (const auto* one : jobs())
        if (one->id() == job) return rendezvous::agents_json(*one);
    const auto* found = past().find(job, now);
    if (found == nullptr) return std::nullopt;
    nlohmann::json out{{"nodes", nlohmann::json::array()}, {"over", true}};
    if (found->round != no_round) out["round"] = found->round;
    return text_of(out);
}

JobPieces Server::job_pieces(const std::string& job, Instant now, SeenNodes& seen) const {
    for (const auto* one : jobs())
        if (one->id() == job) return rendezvous::job_pieces(*one, now, seen);
    const auto* found = past().find(job, now);
    return without_nodes(found == nullptr ? "null" : job_json(*found), now, seen);
}

std::vector<JobSummary> Server::summaries(Instant now) const {
    std::vector<JobSummary> all;
    for (const auto* job : jobs()) all.push_back(summary_of(*job, now));
    past().append_to(all, now);
    return all;
}

bool Server::indexes_agree() const {
    return std::ranges::all_of(jobs(), [](const Job* job) { return job->indexes_agree(); });
}

}  // namespace muster::rendezvous
