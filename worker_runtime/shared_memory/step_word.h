// The progress of a rank, in memory that its group shares: one word per rank, which its owner increments and all others
// wait for. A wait spins, then yields, then sleeps on a futex. So it is fast if every rank has a core and harmless if
// ranks outnumber cores.
//
//   value = steps << 2 | left << 1 | failed
//
// Any rank that finds the group broken sets `failed` on the words of all ranks. The owner sets `left` when it closes
// its communicator in order. Both change the word on which waiters sleep, so no waiter misses them.
//
// A failed word never increases again. A rank at its deadline marks the word that it waited for in the same atomic step
// that reads the missing increment. So the rank at its deadline and the late one both pass or both fail. If one rank
// has abandoned a step, no rank passes it, because all wait for that word.
#pragma once

#include <atomic>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster::runtime {

struct StepWord {
    std::atomic<std::uint64_t> value = 0;
    std::atomic<std::uint32_t> sleepers = 0;  ///< an upper bound: a killed sleeper stays counted
};

/// One more step of the owner. Returns false, without a step, if the word has failed.
[[nodiscard]] bool publish_step(StepWord& word);
void mark_failed(StepWord& word);
void mark_left(StepWord& word);

[[nodiscard]] std::uint64_t steps_of(const StepWord& word);
[[nodiscard]] bool has_left(const StepWord& word);
[[nodiscard]] bool has_failed(const StepWord& word);

/// The work of a waiter before it sleeps.
struct Spin {
    int pauses = 0;
    int yields = 0;
};

enum class WaitEnd { reached, failed, left, timed_out };

/// Waits until the owner has made `step` steps, and returns that or the reason why not. A word that has reached the
/// step and failed counts as reached. After timed_out the word has failed: the owner can no longer make this step.
WaitEnd await_step(StepWord& word, std::uint64_t step, Spin spin, Instant deadline);

}  // namespace muster::runtime
