// Workers that outlive their round (STATES.md, Kept workers). When a round ends and another one may follow, a worker
// that can leave its round in place is asked to. Once it is held, it counts as gone for S4: the rest of the tree is
// killed, and the node joins. The next assignment resumes it. Whatever says that there is no next round for it releases
// it: it gets what every worker gets at its round's end. Only fencing kills it at once.
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

void Supervisor::on(const WorkerKeeps& event, Instant now) {
    if (kept_) {
        if (event.word != KeepWord::cannot || event.local_rank >= kept_->stays.size()) return;
        auto& stay = kept_->stays[event.local_rank];
        if (stay != Stay::held) return;
        stay = Stay::ending;  // nobody can resume it any more
        kill_kept_tree(now);
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
        release_one(event.local_rank, now);
    }
}

/// What every other worker got at the round's end, for this one alone.
void Supervisor::release_one(std::uint32_t local_rank, Instant now) {
    KeepWorkers others;
    for (std::uint32_t other = 0; other < round_->workers.size(); ++other)
        if (other != local_rank && round_->workers[other].fate == WorkerState::running)
            others.local_ranks.push_back(other);
    act(std::move(others));
    act(SendRoundOver{"this worker left its round by itself"});
    act(SignalWorkers{round_->drain->signal, awaited_timeouts()});
    keep_only(Keep::asked);
    kill_again(now);
}

/// Workers that a KillTree was to leave alone do not stay after all, so it is sent once more. The host does not report
/// the answer to the one before.
void Supervisor::kill_again(Instant now) {
    if (!round_->drain->killed_at || round_->drain->forced_at) return;  // with the guardian everything ends
    round_->tree_empty = false;
    round_->drain->killed_at = now;
    act(KillTree{});
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
void Supervisor::release_workers(const std::string& why, Instant now) {
    for (auto& worker : round_->workers) worker.keep = Keep::no;
    act(KeepWorkers{});
    act(SendRoundOver{why});
    act(SignalWorkers{sigterm, awaited_timeouts()});
    kill_again(now);
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
        // During KillTree the grace of the others is over. These have theirs when it is answered (settle_kept).
        if (drain.killed_at && !round_->fenced) return;
        drain.hold_until = no_deadline;
        release_workers("no round follows", now);
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

bool Supervisor::any_stays(Stay stay) const {
    return std::find(kept_->stays.begin(), kept_->stays.end(), stay) != kept_->stays.end();
}

/// The round is drained: its state no longer counts those that wait for the next one.
void Supervisor::settle_kept(Instant now) {
    if (round_ && drained() && !kept_) {
        std::vector<Stay> stays;
        for (auto& worker : round_->workers) {
            const bool held = worker.keep == Keep::held && worker.fate == WorkerState::running;
            stays.push_back(held ? Stay::held : Stay::gone);
            if (held) worker.fate = WorkerState::stopped;
            worker.keep = Keep::no;
        }
        kept_.emplace(KeptWorkers{.stays = std::move(stays)});
    }
    if (!kept_) return;
    if (ending_ || (round_ && !another_round_follows())) release_kept("no round follows");
    if (kept_->killed_at) {
        if (now >= *kept_->killed_at + config_.kill_wait && !stuck_) on_tree_stuck("processes of held workers");
    } else if (kept_->kill_at == no_deadline && !any_stays(Stay::held)) {
        kept_.reset();
    } else if (kept_->released_why) {
        settle_released(now);
    }
}

/// There is no next round for those that are held.
void Supervisor::release_kept(const std::string& why) {
    if (kept_ && !kept_->released_why) kept_->released_why = why;
}

void Supervisor::settle_released(Instant now) {
    if (stop_count_ > 1) return kill_kept("stopped twice", now);
    if (kept_->kill_at == no_deadline) {
        say(cat("stopping the workers that are held: ", *kept_->released_why));
        const auto* stopped = ending_ ? std::get_if<Cancelled>(&*ending_) : nullptr;
        for (auto& stay : kept_->stays)
            if (stay == Stay::held) stay = Stay::ending;
        kept_->kill_at = now + config_.grace;
        act(KeepWorkers{});
        act(SendRoundOver{*kept_->released_why});
        act(SignalWorkers{stopped != nullptr ? stopped->signal : sigterm, awaited_timeouts()});
    } else if (now >= kept_->kill_at || !any_stays(Stay::ending)) {
        kill_kept_tree(now);
    }
}

/// Without a grace.
void Supervisor::kill_kept(const std::string& why, Instant now) {
    if (!kept_ || (kept_->killed_at && !any_stays(Stay::held))) return;
    release_kept(why);
    say(cat("killing the workers that are held: ", why));
    for (auto& stay : kept_->stays)
        if (stay == Stay::held) stay = Stay::ending;
    kill_kept_tree(now);
}

/// All but those that are held.
void Supervisor::kill_kept_tree(Instant now) {
    KeepWorkers held;
    for (std::uint32_t local_rank = 0; local_rank < kept_->stays.size(); ++local_rank)
        if (kept_->stays[local_rank] == Stay::held) held.local_ranks.push_back(local_rank);
    kept_->killed_at = now;
    act(std::move(held));
    act(KillTree{});
}

void Supervisor::on_kept_tree_empty(Instant now) {
    for (auto& stay : kept_->stays)
        if (stay == Stay::ending) stay = Stay::gone;
    kept_->killed_at.reset();
    kept_->kill_at = no_deadline;
    if (kept_->released_why && any_stays(Stay::held)) return;  // their grace begins now
    const auto later = std::exchange(kept_->later, {});
    if (!any_stays(Stay::held)) kept_.reset();
    for (const auto& message : later) on(DaemonMessage{message}, now);
}

/// True if the event is one of the workers that are held.
bool Supervisor::on_kept_event(const HostEvent& event, Instant now) {
    if (!kept_) return false;
    if (const auto* ended = std::get_if<WorkerEnded>(&event.event)) {
        if (ended->local_rank >= kept_->stays.size() || kept_->stays[ended->local_rank] == Stay::gone) return false;
        const bool was_held = std::exchange(kept_->stays[ended->local_rank], Stay::gone) == Stay::held;
        if (!was_held) return true;
        say(cat("local rank ", ended->local_rank, " ended while it was held (", describe(ended->end),
                "): it is started again"));
        // What it has started may be in any group. The host has killed that of a lost guardian.
        if (!ended->orphaned) kill_kept_tree(now);
        return true;
    }
    if (std::holds_alternative<WorkerStarted>(event.event)) return true;  // of a worker that was held very soon
    if (!kept_->killed_at) return false;
    if (std::holds_alternative<TreeEmpty>(event.event)) {
        on_kept_tree_empty(now);
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
    for (std::uint32_t local_rank = 0; kept_ && local_rank < kept_->stays.size(); ++local_rank)
        if (kept_->stays[local_rank] == Stay::held) ranks.push_back(local_rank);
    kept_.reset();
    return ranks;
}

}  // namespace muster::agent
