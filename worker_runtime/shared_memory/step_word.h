// How far a rank has come, in memory that its group shares: one word each, which its owner raises and all others wait
// for. A wait spins, then yields, then sleeps on a futex, so that it is quick where every rank has a core and harmless
// where ranks outnumber cores.
//
//   value = steps << 2 | left << 1 | failed
//
// `failed` is set by whoever finds that the group is broken, on the words of all ranks; `left` by the owner when it
// closes its communicator in order. Both change the word that sleepers watch, so none of them can miss it.
//
// A word that has failed rises no more, and who gives up at its deadline marks the word that it waited for in the same
// atomic step in which it sees that it has not risen. So of the rank that gives up and the one that is late, either
// both pass or both fail; and where one rank has given up a step, no rank passes it, because all wait for that word.
#pragma once

#include <atomic>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster::runtime {

struct StepWord {
    std::atomic<std::uint64_t> value = 0;
    std::atomic<std::uint32_t> sleepers = 0;  ///< an upper bound: a sleeper that is killed stays counted
};

/// One more step of the owner's. False, and no step, when the word has failed.
[[nodiscard]] bool publish_step(StepWord& word);
void mark_failed(StepWord& word);
void mark_left(StepWord& word);

[[nodiscard]] std::uint64_t steps_of(const StepWord& word);
[[nodiscard]] bool has_left(const StepWord& word);
[[nodiscard]] bool has_failed(const StepWord& word);

/// What a waiter does before it sleeps.
struct Spin {
    int pauses = 0;
    int yields = 0;
};

enum class WaitEnd { reached, failed, left, timed_out };

/// Returns when the owner has made `step` steps, or what prevents that. A word that has both reached and failed counts
/// as reached. After timed_out the word has failed: the owner will not make this step any more.
WaitEnd await_step(StepWord& word, std::uint64_t step, Spin spin, Instant deadline);

}  // namespace muster::runtime
