// --event-log-handler console: torchrun's own lines about workers, made from this node's events. Pure.
//
// torch's Event.deserialize (torch.distributed.elastic.events) reads each line. Its quirks are kept: "timestamp" is
// always 0, and the inner "metadata" is a JSON string whose numbers are lists of one element.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agent/supervision/supervisor.h"

namespace muster::agent {

/// What is the same in all lines of a launcher.
struct TorchEventContext {
    std::string run_id;
    std::string role;
    std::string host;
    std::string backend;  ///< "c10d", "static" ...
    std::string entry;    ///< The program.
};

class TorchEvents {
  public:
    TorchEvents(TorchEventContext context, Instant started) : context_(std::move(context)), started_(started) {}

    /// START for a worker that has started. Nothing for other events.
    std::vector<std::string> take(const Event& event);
    /// At the end: SUCCEEDED, FAILED or TERMINATED for each worker of the last round, then the agent's own state.
    std::vector<std::string> end(bool succeeded, const std::string& why, Instant now) const;

  private:
    struct Worker {
        EventFacts start;
        std::string error;  ///< Empty: it has not failed.
    };
    [[nodiscard]] std::string line(std::string_view state, const Worker* worker, const std::string& error,
                                   std::int64_t run_time_s) const;

    const TorchEventContext context_;
    const Instant started_;
    EventFacts assigned_;                     ///< Of the last round.
    std::map<std::int32_t, Worker> workers_;  ///< By rank, of the last round.
};

}  // namespace muster::agent
