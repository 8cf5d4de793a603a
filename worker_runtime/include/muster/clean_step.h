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
// A process that leaves a round between begin() and set() has a torn state, which no rank continues from. If no rank
// has a whole state, and there is no checkpoint either, load() returns an error. A program that then makes its state
// anew in the same process also makes a new CleanStep.
#pragma once

#include <cstdint>

namespace muster {

/// One thread at a time.
class CleanStep {
  public:
    /// A state that had a step, and has none now. It is not the state of a new process.
    static constexpr std::int64_t torn = -2;

    /// The state is about to change.
    void begin() {
        if (step_ >= 0) step_ = torn;
    }
    /// The state is that of `step`, whole, as every rank has it after that step. Work that a GPU has only queued may
    /// still fail: wait for it, and for Communicator::status(), first.
    void set(std::int64_t step) { step_ = step; }
    /// -1: the state never had a step, as in a new process. `torn`: it is of no step any more.
    [[nodiscard]] std::int64_t step() const { return step_; }

  private:
    std::int64_t step_ = -1;
};

}  // namespace muster
