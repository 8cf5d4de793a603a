// How often what happened to a job, for metrics. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "rendezvous/events/event.h"

namespace muster {

struct JobCounters {
    /// Sealed rounds by what led to them: "start", or the reason of the last round's end. A fold over the events.
    std::map<std::string, std::uint64_t> rounds;
    /// Failed workers and lost nodes by kind and cause. A cause that is unknown is "unknown". Not from events, which
    /// have only the first failures of a round. The job counts what is new in its round's FailureLedger.
    std::map<std::pair<std::string, std::string>, std::uint64_t> failures;

    void take(const Event& event);

  private:
    std::string next_round_ = "start";
};

}  // namespace muster
