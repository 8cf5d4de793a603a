// What a worker tells its agent about itself, so that slow is not taken for hung, and hung not for slow.
//
//     {
//         const muster::Section section("evaluation", 10min);      // told of beyond ten minutes; without: never
//         evaluate();
//     }
//     muster::heartbeat();                                        // in each step of a loop that no collective shows
//
// The agent learns how long a worker's pauses between collectives, and between heartbeats, are; a much longer one is
// told of, with stacks. In a section nothing is learned, and nothing but the section's own limit counts. Nobody is
// ended for any of this (agent/FAILURES.md).
//
// All of it costs a datagram at most, waits for nothing, fails silently, and does nothing outside of muster or in a
// forked child. No Context is needed. Any thread may call it.
#pragma once

#include <cstdint>
#include <string_view>

#include "rendezvous/base/time.h"

namespace muster {

/// "I live and go on." Of more than ten a second the rest is left out.
void heartbeat() noexcept;

/// From here to the end of the scope the worker does something that has this name. Of sections inside each other, and
/// of those of several threads, the one that was entered last counts.
class Section {
  public:
    /// `name`: 64 bytes at most are told. `limit`: zero means that it may last.
    explicit Section(std::string_view name, Duration limit = Duration::zero()) noexcept;
    ~Section();
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

  private:
    std::uint64_t number_;
};

}  // namespace muster
