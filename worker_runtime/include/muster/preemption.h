// A preemption notice: the job will be stopped soon, so save and exit in time. All ranks act on it in the same step.
//
//     auto notice = muster::PreemptionNotice::watch(context);
//     for (each step) {
//         ...
//         auto leave = notice->agreed(context.world());        // a collective: the same answer on all ranks
//         if (leave && *leave) {
//             checkpointer->save(step, state, muster::WhenBusy::wait);
//             if (checkpointer->finish()) return muster::exit_saved_and_left;
//         }
//     }
//
// A notice is a signal (SIGTERM by default) or a message from the agent, to any one rank. A stop is different: if the
// round ends because a peer failed, the agent sends `round_ended` before SIGTERM. Every collective then returns an
// error, and the signal ends the process, because ranks cannot save together with a dead one.
#pragma once

#include <csignal>
#include <memory>
#include <vector>

#include "muster/communicator.h"
#include "muster/context.h"
#include "rendezvous/base/error.h"

namespace muster {

namespace runtime {
class Notices;
}

/// The exit code for "state saved": muster does not restart the job here; a scheduler may queue it again.
inline constexpr int exit_saved_and_left = 76;

class PreemptionNotice {
  public:
    /// Handles `signals`, and the launcher's preemption signal, until this object is destroyed. already_exists: this
    /// process has another PreemptionNotice. invalid_argument: a signal cannot be handled.
    static Result<PreemptionNotice> watch(const Context& context, std::vector<int> signals = {SIGTERM});
    ~PreemptionNotice();
    PreemptionNotice(PreemptionNotice&&) noexcept;
    PreemptionNotice& operator=(PreemptionNotice&&) noexcept;

    /// The number of notices that this rank itself has received. 1: save and exit. 2 or more: exit as fast as possible.
    [[nodiscard]] int count() const;

    /// A collective (one small all_reduce): returns true if any rank has received a notice.
    Result<bool> agreed(Communicator& world) const;

  private:
    struct Handlers;
    PreemptionNotice(std::shared_ptr<runtime::Notices> notices, std::unique_ptr<Handlers> handlers);
    std::shared_ptr<runtime::Notices> notices_;
    std::unique_ptr<Handlers> handlers_;
};

}  // namespace muster
