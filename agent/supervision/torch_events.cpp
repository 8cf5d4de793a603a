#include "agent/supervision/torch_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using json = nlohmann::ordered_json;

std::string dumped(const json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

json or_null(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

}  // namespace

std::vector<std::string> TorchEvents::take(const Event& event) {
    switch (event.kind) {
        case EventKind::round_assigned:
            assigned_ = event.facts;
            workers_.clear();
            return {};
        case EventKind::worker_started: {
            auto& worker = workers_[event.facts.rank] = Worker{event.facts, {}};
            return {line("START", &worker, {}, 0)};
        }
        case EventKind::worker_failed:
            if (const auto found = workers_.find(event.facts.rank); found != workers_.end())
                found->second.error = event.text;
            return {};
        default: return {};
    }
}

std::vector<std::string> TorchEvents::end(bool succeeded, const std::string& why, Instant now) const {
    const auto run_time = std::chrono::duration_cast<std::chrono::seconds>(now - started_).count();
    std::vector<std::string> lines;
    for (const auto& [rank, worker] : workers_) {
        // torchrun calls whatever did not fail in a failed job terminated.
        const auto* state = succeeded ? "SUCCEEDED" : worker.error.empty() ? "TERMINATED" : "FAILED";
        lines.push_back(line(state, &worker, succeeded ? std::string() : worker.error, run_time));
    }
    lines.push_back(line(succeeded ? "SUCCEEDED" : "FAILED", nullptr, succeeded ? std::string() : why, run_time));
    return lines;
}

/// Without a worker it is the agent's.
std::string TorchEvents::line(std::string_view state, const Worker* worker, const std::string& error,
                              std::int64_t run_time_s) const {
    json inner{{"group_world_size", assigned_.node_count >= 0 ? json(assigned_.node_count) : json(nullptr)},
               {"entry_point", context_.entry}};
    if (worker != nullptr) {
        inner["local_rank"] = {worker->start.local_rank};
        inner["role_rank"] = {worker->start.role_rank};
        inner["role_world_size"] = {worker->start.role_world_size};
        inner["worker_pid"] = {worker->start.pid};
    }
    json metadata;
    metadata["run_id"] = context_.run_id;
    metadata["global_rank"] = worker == nullptr ? json(nullptr) : json(worker->start.rank);
    metadata["group_rank"] = assigned_.group_rank >= 0 ? json(assigned_.group_rank) : json(nullptr);
    metadata["worker_id"] = worker == nullptr ? json(nullptr) : json(cat(worker->start.pid));
    metadata["role"] = context_.role;
    metadata["hostname"] = context_.host;
    metadata["state"] = state;
    metadata["total_run_time"] = run_time_s;
    metadata["rdzv_backend"] = context_.backend;
    metadata["raw_error"] = or_null(error);
    metadata["metadata"] = dumped(inner);
    metadata["agent_restarts"] = std::max<std::int64_t>(assigned_.restart_count, 0);
    metadata["duration_ms"] = nullptr;
    json out;
    out["name"] = cat("torchelastic.worker.status.", state);
    out["source"] = worker == nullptr ? "AGENT" : "WORKER";
    out["timestamp"] = 0;
    out["metadata"] = std::move(metadata);
    return dumped(out) + "\n";
}

}  // namespace muster::agent
