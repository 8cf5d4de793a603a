// Of which step the state in this process's memory is.
//
//     muster::CleanStep clean;                        // beside the model: it outlives the rounds, as the model does
//     ...
//     auto loaded = checkpointer->load(state, clean); // keeps a clean state, or fills it
//     ...
//     clean.begin();                                  // from here on the memory is of no step
//     ...                                             // every change of the state
//     clean.set(step);                                // the whole state is that of `step`
//
// A process that leaves a round between begin() and set() has a torn state, which no rank continues from.
#pragma once

#include <cstdint>

namespace muster {

/// One thread at a time.
class CleanStep {
  public:
    /// The state is about to change.
    void begin() { step_ = -1; }
    /// The state is that of `step`, whole, as every rank has it after that step. Work that a GPU has only queued may
    /// still fail: wait for it, and for Communicator::status(), first.
    void set(std::int64_t step) { step_ = step; }
    /// -1: the state is of no step.
    [[nodiscard]] std::int64_t step() const { return step_; }

  private:
    std::int64_t step_ = -1;
};

}  // namespace muster
