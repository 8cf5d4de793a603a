// Training that survives the failure of another rank in its own process.
//
//     auto context = muster::Context::from_environment();
//     ...
//     auto done = muster::run_recoverable(*context, [&](muster::Context& now, const muster::Resume& resume) ->
//     muster::Result<void> {
//         auto checkpointer = muster::Checkpointer::open(now, ...);      // made anew in each call
//         auto reducer = muster::GradientReducer::make(now.world(), ...);
//         auto loaded = checkpointer->load(state);                       // the newest step in the agents' memory
//         ... train; return the error of any call that fails ...
//     });
//
// When a worker or a node fails, the round ends. Today's way is to stop every worker and to start all of them again. A
// worker inside run_recoverable() stays instead: every communicator of the round fails, the body returns that error,
// and the process waits without a communicator, a connection or a lock of the round. The agents agree on the next round
// as usual, start only the workers that are missing, and this process enters it with the same pid. `context` is the
// same object with another rank, world, round and store, and the body is called again.
//
// What the body must do:
// * Return soon after a call of muster's fails. The agent allows 5 s, then it kills the process and starts it again.
// * Own everything that belongs to a round: communicators, reducers, checkpointers, notices. When it returns, they are
//   destroyed. Memory, data sets and models may be the caller's, and may stay.
// * Load its state with Checkpointer::load(), because the survivors may be one step apart. With a CleanStep
//   (clean_step.h) beside a replicated state, the ranks go on from the survivors' highest step; without, from the
//   newest copy that is complete.
//
// The error is only ever returned by muster's own calls. Nothing is interrupted in an optimizer's step. A call that
// waits for something else (a file system, a lock, a GPU) is not interrupted either: such a process is killed at the
// limit.
//
// The environment variables of the round (RANK, WORLD_SIZE, MASTER_ADDR, MUSTER_ROUND and others) are set anew with
// setenv() before the body is called again: no other thread may read the environment at that time. Output continues in
// the log files where the process began.
//
// Without muster's agent, with an agent of an older version, and where no round follows, run_recoverable() returns the
// body's error, as if the body had been called directly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "muster/context.h"
#include "rendezvous/base/error.h"

namespace muster {

struct Resume {
    std::uint32_t count = 0;  ///< Rounds that this process has left in place. 0: the first call.
    std::string why;          ///< The error that the body returned before this call.
};

/// Calls `body` until it succeeds, or fails for a reason that is no end of a round. `context` has one user at a time.
Result<void> run_recoverable(Context& context, const std::function<Result<void>(Context&, const Resume&)>& body);

}  // namespace muster
