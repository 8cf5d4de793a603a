// How a process aborts failed NCCL communicators, as a pure state machine.
//
// The order matters; each step prevents a known hang:
//   publish     every rank has to give up, so the others must be informed before this one is busy
//   settle      no thread may be inside a call on these communicators while they are aborted
//   deregister  registered memory is released before its communicator
//   abort       all communicators of the process in one group: one after the other, the first waits for the second's
//               kernel forever
//   release     only now may device memory be freed: a free waits for kernels
// Publishing has a share of the time and is then abandoned. A step that has not ended at the deadline never will; the
// process then exits at once, so that no clean-up delays the restart.
//
// step() takes one event and returns the next actions. The driver (nccl/abort_driver) runs each action in its own
// thread and reports its end; it calls tick() at next_deadline().
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/time.h"

namespace muster::runtime {

enum class NcclAbortPhase {
    running,  ///< nothing has failed
    publishing,
    settling,
    deregistering,
    aborting,
    releasing,  ///< all communicators are destroyed; device memory is freed
    over,
    left,  ///< the process was told to exit
};

enum class NcclAbortAction { none, publish, settle, deregister, abort_all, release, leave };

class NcclAbort {
  public:
    /// `limit`: the time from the failure to the end of all steps.
    explicit NcclAbort(Duration limit) : limit_(limit) {}

    /// Reports a failure. Only the first one counts.
    NcclAbortAction failed(std::string why, Instant now);
    /// Reports that the action of `phase` has ended. After its phase was abandoned, this has no effect.
    NcclAbortAction ended(NcclAbortPhase phase, Instant now);
    NcclAbortAction tick(Instant now);

    [[nodiscard]] NcclAbortPhase phase() const { return phase_; }
    /// The first failure; empty while there is none.
    [[nodiscard]] const std::string& why() const { return why_; }
    /// The time of the next tick(); nothing if no deadline is set.
    [[nodiscard]] std::optional<Instant> next_deadline() const;

  private:
    NcclAbortAction enter(NcclAbortPhase phase, Instant now);

    Duration limit_;
    NcclAbortPhase phase_ = NcclAbortPhase::running;
    Instant phase_end_{};
    Instant end_{};
    std::string why_;
};

}  // namespace muster::runtime
