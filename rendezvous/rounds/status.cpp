#include "rendezvous/rounds/status.h"

#include <nlohmann/json.hpp>

namespace muster::rendezvous {

namespace {

std::string_view name(Place place) {
    switch (place) {
        case Place::waiting: return "waiting";
        case Place::running: return "running";
        case Place::succeeded: return "succeeded";
        case Place::draining: return "draining";
        case Place::lost: return "lost";
    }
    return "unknown";
}

nlohmann::json describe(const Member& member, Instant now) {
    using std::chrono::milliseconds;
    nlohmann::json out{{"host", member.node.host},
                       {"pid", member.node.pid},
                       {"place", member.parked_at > 0 ? std::string_view("parked") : name(member.place)},
                       {"slots", member.join.slots},
                       {"role", member.join.role},
                       {"connected", member.connected()},
                       {"silent_ms", std::chrono::duration_cast<milliseconds>(now - member.last_received).count()}};
    if (member.round != no_round) out["group_rank"] = member.group_rank;
    if (member.excluded) out["left_out"] = true;
    return out;
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
                       {"nodes", nlohmann::json::array()}};
    for (const auto& [incarnation, member] : job.members()) out["nodes"].push_back(describe(member, now));
    return out;
}

}  // namespace

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
