#include "worker_runtime/nccl/core/nccl_abort.h"

#include <utility>

namespace muster::runtime {

namespace {

/// Publishing may use 1/8 of the time: a store that does not answer must not keep the GPU busy.
constexpr int publishing_share = 8;

NcclAbortAction action_of(NcclAbortPhase phase) {
    switch (phase) {
        case NcclAbortPhase::publishing: return NcclAbortAction::publish;
        case NcclAbortPhase::settling: return NcclAbortAction::settle;
        case NcclAbortPhase::deregistering: return NcclAbortAction::deregister;
        case NcclAbortPhase::aborting: return NcclAbortAction::abort_all;
        case NcclAbortPhase::releasing: return NcclAbortAction::release;
        case NcclAbortPhase::left: return NcclAbortAction::leave;
        case NcclAbortPhase::over:
        case NcclAbortPhase::running: break;
    }
    return NcclAbortAction::none;
}

/// The next step. They are in the order of the enumerators.
NcclAbortPhase after(NcclAbortPhase phase) {
    return static_cast<NcclAbortPhase>(static_cast<int>(phase) + 1);
}

bool decided_by_time(NcclAbortPhase phase) {
    return phase >= NcclAbortPhase::publishing && phase <= NcclAbortPhase::releasing;
}

}  // namespace

NcclAbortAction NcclAbort::enter(NcclAbortPhase phase, Instant now) {
    phase_ = phase;
    phase_end_ = phase == NcclAbortPhase::publishing ? now + limit_ / publishing_share : end_;
    return action_of(phase);
}

NcclAbortAction NcclAbort::failed(std::string why, Instant now) {
    if (phase_ != NcclAbortPhase::running) return NcclAbortAction::none;
    why_ = std::move(why);
    end_ = now + limit_;
    return enter(NcclAbortPhase::publishing, now);
}

NcclAbortAction NcclAbort::ended(NcclAbortPhase phase, Instant now) {
    if (phase != phase_ || !decided_by_time(phase)) return NcclAbortAction::none;
    return enter(after(phase), now);
}

NcclAbortAction NcclAbort::tick(Instant now) {
    if (!decided_by_time(phase_) || now < phase_end_) return NcclAbortAction::none;
    // The other ranks learn of it later, from their agents. But nothing is aborted while a thread is inside NCCL.
    if (phase_ == NcclAbortPhase::publishing) return enter(NcclAbortPhase::settling, now);
    return enter(NcclAbortPhase::left, now);
}

std::optional<Instant> NcclAbort::next_deadline() const {
    if (!decided_by_time(phase_)) return std::nullopt;
    return phase_end_;
}

}  // namespace muster::runtime
