// Workers that outlive their round (STATES.md, Kept workers). When a round ends and another one may follow, a worker
// that can leave its round in place is asked to. Once it is held, it counts as gone for S4: the rest of the tree is
// killed, and the node joins. The next assignment resumes it. Whatever says that there is no next round for it kills
// it.
#include <algorithm>
#include <utility>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

bool Supervisor::is_done(const Worker& worker) const {
    return worker.fate != WorkerState::running || worker.keep == Keep::held;
}

bool Supervisor::another_round_follows() const {
    return !ending_ && !round_->fenced && !(round_->ended && round_->ended->final);
}

void Supervisor::on(const WorkerKeeps& event, Instant) {
    if (kept_) {
        const bool held = event.local_rank < kept_->held.size() && kept_->held[event.local_rank];
        // Nobody can resume it any more.
        if (held && event.word == KeepWord::cannot) act(SignalGroup{event.local_rank, sigkill});
        return;
    }
    if (!round_ || event.local_rank >= round_->workers.size()) return;
    auto& worker = round_->workers[event.local_rank];
    if (worker.fate != WorkerState::running) return;
    if (event.word == KeepWord::can && !round_->drain) {
        worker.keep = Keep::can;
    } else if (event.word == KeepWord::held && worker.keep == Keep::asked) {
        worker.keep = Keep::held;
        say(cat("local rank ", event.local_rank, " has left the round and is held"));
    } else if (event.word == KeepWord::cannot) {
        const bool stays = worker.keep == Keep::asked || worker.keep == Keep::held;
        worker.keep = Keep::no;
        if (!stays) return;
        keep_only(Keep::asked);
        act(SignalGroup{event.local_rank, round_->drain->signal});
    }
}

/// Asks each worker that can be kept to leave the round in place.
void Supervisor::hold_workers(const std::string& why, Instant now) {
    bool any = false;
    for (auto& worker : round_->workers) {
        if (worker.keep != Keep::can || worker.end_held || worker.fate != WorkerState::running) continue;
        worker.keep = Keep::asked;
        any = true;
    }
    if (!any) return;
    round_->drain->hold_until = now + config_.hold_wait;
    keep_only(Keep::asked);
    act(SendHold{why, config_.hold_wait});
}

/// Of the workers that stay, those that are not so far do not stay after all.
void Supervisor::keep_only(Keep least) {
    KeepWorkers keep;
    for (std::uint32_t local_rank = 0; local_rank < round_->workers.size(); ++local_rank) {
        auto& worker = round_->workers[local_rank];
        if (worker.keep == Keep::no || worker.keep == Keep::can) continue;
        if (worker.keep >= least)
            keep.local_ranks.push_back(local_rank);
        else
            worker.keep = Keep::no;
    }
    act(std::move(keep));
}

/// There is no next round for those that stay: what every other worker got at the round's end.
void Supervisor::release_workers(const std::string& why) {
    for (auto& worker : round_->workers) worker.keep = Keep::no;
    act(KeepWorkers{});
    act(SendRoundOver{why});
    act(SignalWorkers{sigterm, awaited_timeouts()});
}

void Supervisor::settle_held(Instant now) {
    auto& drain = *round_->drain;
    const auto any = [&](Keep keep) {
        return std::any_of(round_->workers.begin(), round_->workers.end(),
                           [&](const Worker& worker) { return worker.keep == keep; });
    };
    if (!any(Keep::asked)) drain.hold_until = no_deadline;
    if (!any(Keep::asked) && !any(Keep::held)) return;
    if (!another_round_follows()) {
        drain.hold_until = no_deadline;
        release_workers("no round follows");
    } else if (now >= drain.hold_until) {
        drain.hold_until = no_deadline;
        for (std::uint32_t local_rank = 0; local_rank < round_->workers.size(); ++local_rank) {
            auto& worker = round_->workers[local_rank];
            if (worker.keep != Keep::asked) continue;
            worker.hold_missed = true;
            tell(cat("rank ", round_->assignment.rank_base + local_rank, " did not leave its round within ",
                     describe(config_.hold_wait),
                     ", most likely because it is in a call that muster cannot interrupt; it is killed and started "
                     "again, and the workers that are held stay"));
            act(SignalGroup{local_rank, sigkill});
        }
        keep_only(Keep::held);
    }
}

/// The round is drained: its state no longer counts those that wait for the next one.
void Supervisor::settle_kept(Instant now) {
    if (round_ && drained() && !kept_) {
        std::vector<bool> held;
        for (auto& worker : round_->workers) {
            held.push_back(worker.keep == Keep::held && worker.fate == WorkerState::running);
            if (held.back()) worker.fate = WorkerState::stopped;
            worker.keep = Keep::no;
        }
        kept_.emplace(KeptWorkers{.held = std::move(held), .killed_at = {}, .later = {}});
    }
    if (!kept_) return;
    if (kept_->killed_at) {
        if (now >= *kept_->killed_at + config_.kill_wait && !stuck_) on_tree_stuck("processes of held workers");
    } else if (std::find(kept_->held.begin(), kept_->held.end(), true) == kept_->held.end()) {
        kept_.reset();
    } else if (ending_) {
        release_kept("no round follows", now);
    }
}

void Supervisor::release_kept(const std::string& why, Instant now) {
    if (!kept_ || kept_->killed_at) return;
    say(cat("killing the workers that are held: ", why));
    kept_->killed_at = now;
    act(KeepWorkers{});
    act(KillTree{});
}

/// True if the event is one of the workers that are held.
bool Supervisor::on_kept_event(const HostEvent& event, Instant now) {
    if (!kept_) return false;
    if (const auto* ended = std::get_if<WorkerEnded>(&event.event)) {
        if (ended->local_rank >= kept_->held.size() || !kept_->held[ended->local_rank]) return false;
        kept_->held[ended->local_rank] = false;
        if (!kept_->killed_at)
            say(cat("local rank ", ended->local_rank, " ended while it was held (", describe(ended->end),
                    "): it is started again"));
        if (ended->group_left && !kept_->killed_at) act(SignalGroup{ended->local_rank, sigkill});
        return true;
    }
    if (std::holds_alternative<WorkerStarted>(event.event)) return true;  // of a worker that was held very soon
    if (!kept_->killed_at) return false;
    if (std::holds_alternative<TreeEmpty>(event.event)) {
        const auto later = std::exchange(kept_->later, {});
        kept_.reset();
        for (const auto& message : later) on_daemon(message, now);
        return true;
    }
    if (std::holds_alternative<TreeStuck>(event.event)) {
        on_tree_stuck(event.notes.cause.text.empty() ? "processes of held workers" : event.notes.cause.text);
        return true;
    }
    return false;
}

/// The local ranks of those that enter the round which was just assigned.
std::vector<std::uint32_t> Supervisor::take_kept() {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t local_rank = 0; kept_ && local_rank < kept_->held.size(); ++local_rank)
        if (kept_->held[local_rank]) ranks.push_back(local_rank);
    kept_.reset();
    return ranks;
}

}  // namespace muster::agent
