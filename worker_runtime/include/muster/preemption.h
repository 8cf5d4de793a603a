// A notice that the job will be stopped soon: save, and leave in time. All ranks act on it in the same step.
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
// A notice is a signal (SIGTERM by default) or a message of the agent, to any one rank. A stop is something else: when
// the round is over because a peer failed, the agent says so before it sends SIGTERM, every collective returns an
// error, and the signal ends the process: nobody saves together with ranks that may be dead.
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

/// The exit code that says to muster: all is saved, do not start the job again here; whoever queues it may.
inline constexpr int exit_saved_and_left = 76;

class PreemptionNotice {
  public:
    /// Handles `signals`, and the launcher's preemption signal, in this process until the object goes. already_exists:
    /// another one does. invalid_argument: a signal that cannot be handled.
    static Result<PreemptionNotice> watch(const Context& context, std::vector<int> signals = {SIGTERM});
    ~PreemptionNotice();
    PreemptionNotice(PreemptionNotice&&) noexcept;
    PreemptionNotice& operator=(PreemptionNotice&&) noexcept;

    /// How many notices this rank itself has got: 1 says leave, a second one says hurry.
    [[nodiscard]] int count() const;

    /// A collective (one small all_reduce): has any rank got one?
    Result<bool> agreed(Communicator& world) const;

  private:
    struct Handlers;
    PreemptionNotice(std::shared_ptr<runtime::Notices> notices, std::unique_ptr<Handlers> handlers);
    std::shared_ptr<runtime::Notices> notices_;
    std::unique_ptr<Handlers> handlers_;
};

}  // namespace muster
