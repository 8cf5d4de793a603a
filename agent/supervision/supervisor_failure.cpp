// What the failure of one worker means: the end of the round, or with --on-worker-failure=keep another start of this
// worker alone, while the others keep running. That is for scripts that recover by themselves (torchft, the in-process
// restart of NVRx, their own code).
#include <algorithm>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::string sentence_on(const Failure& failure) {
    return cat(
        "rank ", failure.rank, " on ", failure.host, " failed: ", describe(failure.end),
        failure.cause.kind == CauseKind::unknown ? std::string() : cat(" (", description_of(failure.cause.kind), ")"));
}

}  // namespace

void Supervisor::fail_round(Failure failure, WorkerState fate, Instant now) {
    const auto why = sentence_on(failure);
    say(why);
    report_failure(std::move(failure));
    // Those beside one that saved and left are about to do the same.
    begin_drain(sigterm, fate == WorkerState::saved ? Tell::notice : Tell::round_over, why, now);
}

/// Whether the round goes on without this worker, which has failed, until it is started again. Not if it saved and
/// left, never started, or served the store of all; nor if it would fail in the same way again, or come too late: its
/// machine is about to go, or workers beside it are through.
bool Supervisor::keeps_round(const Worker& worker, const WorkerEnded& ended, const Failure& failure) const {
    if (worker.again_count >= config_.keep_max || worker.fate != WorkerState::failed || round_->drain) return false;
    const bool served_store = config_.rank_0_has_store && round_->assignment.rank_base + ended.local_rank == 0;
    const bool repeats = failure.early && !config_.join.terms.restart_early_failures;
    const bool noticed = round_->noticed_at != Instant::min();
    const bool others_are_through = std::any_of(round_->workers.begin(), round_->workers.end(),
                                                [](const Worker& one) { return one.fate == WorkerState::succeeded; });
    return !std::holds_alternative<NotStarted>(ended.end) && !served_store && !repeats && !noticed &&
           !others_are_through;
}

/// A worker of this node runs, or is about to.
bool Supervisor::may_be_noticed() const {
    return std::any_of(round_->workers.begin(), round_->workers.end(), [](const Worker& worker) {
        return worker.fate == WorkerState::running || worker.fate == WorkerState::replaced;
    });
}

void Supervisor::keep_round(Worker& worker, Failure failure, Instant now) {
    worker.fate = WorkerState::replaced;
    ++worker.again_count;
    worker.replace_until = now + config_.kill_wait;
    tell(cat(sentence_on(failure), "; starting it again (", worker.again_count, " of ", config_.keep_max,
             " times in this round), the other workers keep running"));
    // What it has left may hold its port or its GPU.
    worker.group_signalled = worker.group_left;
    if (worker.group_left) act(SignalGroup{static_cast<std::uint32_t>(failure.local_rank), sigkill});
    worker.failure = std::move(failure);
}

void Supervisor::settle_replaced(Instant now) {
    for (std::uint32_t local_rank = 0; local_rank < round_->workers.size() && !round_->drain; ++local_rank) {
        auto& worker = round_->workers[local_rank];
        if (worker.fate != WorkerState::replaced) continue;
        if (round_->noticed_at != Instant::min()) {
            // The others are to save and leave, and a new worker would not know it.
            worker.fate = WorkerState::failed;
            fail_round(std::move(*worker.failure), WorkerState::saved, now);
        } else if (!worker.group_left) {
            const auto count = worker.again_count;
            worker = Worker{};
            worker.again_count = count;
            worker.started_at = now;
            act(StartAgain{local_rank, count});
        } else if (now >= worker.replace_until) {
            worker.fate = WorkerState::failed;
            say(cat("what local rank ", local_rank, " left in its process group did not end ",
                    describe(config_.kill_wait), " after SIGKILL: ending the round"));
            fail_round(std::move(*worker.failure), worker.fate, now);
        }
    }
}

}  // namespace muster::agent
