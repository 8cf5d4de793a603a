// Sections and heartbeats: a worker reports its activity to its agent, so that the agent can tell slow from hung.
//
//     {
//         const muster::Section section("evaluation", 10min);      // reported after 10 minutes; without a limit: never
//         evaluate();
//     }
//     muster::progress(step);                                     // in each step
//     muster::heartbeat();                                        // in each step of a loop without collectives
//
// The agent learns the usual time between a worker's collectives, and between its heartbeats. It reports a much longer
// pause, with stacks. Inside a section the agent learns nothing, and only the section's own limit applies. The agent
// never stops a worker for any of this (agent/FAILURES.md).
//
// Each call costs at most one datagram, never waits, and ignores errors. Outside muster and in a forked child it does
// nothing. It needs no Context. Any thread may call it.
#pragma once

#include <cstdint>
#include <string_view>

#include "rendezvous/base/time.h"

namespace muster {

/// Reports that this worker is alive and makes progress. At most ten per second are sent; more are dropped.
void heartbeat() noexcept;

/// Reports the number of a completed step, which muster shows and by which it counts how the job's time was spent. Call
/// it in each step, with the numbers that checkpoints have, from 0 on; negative ones are muster's. Every tenth of a
/// second one is sent; those between are dropped.
void progress(std::int64_t step) noexcept;

/// Names the worker's activity until the end of the scope. If sections are nested, or several threads have one, the
/// section entered last counts.
class Section {
  public:
    /// `name`: the first 64 bytes are sent. `limit`: the agent reports a section that lasts longer; zero: no limit.
    explicit Section(std::string_view name, Duration limit = Duration::zero()) noexcept;
    ~Section();
    Section& operator=(Section&&) = delete;

  private:
    std::uint64_t number_;
};

}  // namespace muster
