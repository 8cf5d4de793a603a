// Where the daemon's events go: the log, the journal, the stream that GET /api/v1/jobs/JOB/events reads, and a sink.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/dialects/http_message.h"
#include "rendezvous/events/event_stream.h"

namespace muster::rendezvous {

/// Receives each event's line, on the loop's thread. Must not wait.
using EventSink = std::function<void(std::string_view line)>;

class EventTap {
  public:
    explicit EventTap(EventSink sink);

    void take(const std::vector<Event>& events);
    /// The page at /api/v1/jobs/JOB/events?after=SEQUENCE; nothing for another target. JOB is percent-encoded.
    [[nodiscard]] std::optional<HttpPage> page(std::string_view target) const;

  private:
    EventSink sink_;
    EventStream stream_;
};

}  // namespace muster::rendezvous
