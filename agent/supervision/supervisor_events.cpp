// What happens on this node, as events.
#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

void Supervisor::say(EventKind kind, std::string text, EventFacts facts, EventPlace place) {
    step_.why.push_back({.kind = kind,
                         .text = std::move(text),
                         .facts = std::move(facts),
                         .place = place,
                         .round = round_ ? round_->assignment.round : no_round});
}

void Supervisor::note_assigned() {
    const auto& assignment = round_->assignment;
    say(EventKind::round_assigned,
        cat("round ", assignment.round, ": group rank ", assignment.group_rank, " of ", assignment.group_world_size,
            ", ", ranks_of_node(assignment.rank_base, config_.join.slots), " of ", assignment.world_size),
        {.host = config_.host,
         .group_rank = static_cast<std::int32_t>(assignment.group_rank),
         .node_count = assignment.group_world_size,
         .restart_count = assignment.restart_count},
        EventPlace::log_and_stream);
}

void Supervisor::note_start(const WorkerStarted& started) {
    const auto rank = static_cast<std::int32_t>(round_->assignment.rank_base + started.local_rank);
    say(EventKind::worker_started, cat("rank ", rank, " on ", config_.host, " started, pid ", started.pid),
        {.host = config_.host,
         .pid = started.pid,
         .rank = rank,
         .local_rank = static_cast<std::int32_t>(started.local_rank),
         .role_rank = static_cast<std::int32_t>(round_->assignment.role_rank_base + started.local_rank),
         .role_world_size = static_cast<std::int32_t>(round_->assignment.role_world_size),
         .restart_count = round_->assignment.restart_count},
        EventPlace::stream_only);
}

void Supervisor::note_end(const WorkerEnded& ended, WorkerState fate, const FailureCause& cause) {
    const auto rank = static_cast<std::int32_t>(round_->assignment.rank_base + ended.local_rank);
    EventFacts facts{.host = config_.host,
                     .pid = ended.pid,
                     .rank = rank,
                     .local_rank = static_cast<std::int32_t>(ended.local_rank),
                     .restart_count = round_->assignment.restart_count};
    auto text = cat("rank ", rank, " on ", config_.host, " ended: ", describe(ended.end));
    auto kind = fate == WorkerState::succeeded ? EventKind::worker_succeeded : EventKind::worker_stopped;
    if (fate == WorkerState::failed) {
        kind = EventKind::worker_failed;
        if (cause.kind != CauseKind::unknown) facts.cause = name(cause.kind);
        if (!cause.text.empty()) text += cat("; ", cause.text);
    }
    say(kind, std::move(text), std::move(facts), EventPlace::stream_only);
}

}  // namespace muster::agent
