// How a process gets out of NCCL communicators that have failed, as a pure state machine.
//
// The order matters; each step below cures a hang that others have met:
//   publish     every rank has to give up, so the others must hear of it before this one is busy
//   settle      no thread may be inside a call on these communicators while they are aborted
//   deregister  registered memory goes before its communicator
//   abort       all communicators of the process in one group: one after the other, the first waits for the second's
//               kernel for ever
//   release     only now may device memory be freed: a free waits for kernels
// Publishing gets a share of the time and is then given up. Whatever else has not ended at the deadline never will; the
// process then leaves at once, so that no clean-up holds up the restart.
//
// step() takes one event and returns what is to be done next. The driver (nccl/abort_driver) runs each action in a
// thread of its own and reports its end; it calls tick() when next_deadline() has come.
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
    releasing,  ///< every communicator is gone; device memory is freed
    over,
    left,  ///< the process was told to leave
};

enum class NcclAbortAction { none, publish, settle, deregister, abort_all, release, leave };

class NcclAbort {
  public:
    /// `limit`: from the failure to the end of all steps.
    explicit NcclAbort(Duration limit) : limit_(limit) {}

    /// A failure was found. Only the first counts.
    NcclAbortAction failed(std::string why, Instant now);
    /// The action that `phase` stands for has ended. One that ends after its phase was given up changes nothing.
    NcclAbortAction ended(NcclAbortPhase phase, Instant now);
    NcclAbortAction tick(Instant now);

    [[nodiscard]] NcclAbortPhase phase() const { return phase_; }
    /// The first failure; empty while there is none.
    [[nodiscard]] const std::string& why() const { return why_; }
    /// When tick() will do something; nothing when no time decides.
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
