// Where the daemon's events go: the log, the journal, the stream that GET /api/v1/jobs/JOB/events reads, and a sink.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/dialects/http_message.h"
#include "rendezvous/events/event_stream.h"

namespace muster::rendezvous {

/// Receives each event's line, on the loop's thread. Must not wait.
using EventSink = std::function<void(std::string_view line)>;

/// The last event that a reader has.
struct EventPosition {
    std::uint64_t sequence = 0;
    std::string stream = {};  ///< As in the event's id. Empty: the reader did not keep it.
};
/// From the percent-encoded id of an event, or its bare number. Nothing: it is neither.
std::optional<EventPosition> event_position(std::string_view encoded_id);

class EventTap {
  public:
    explicit EventTap(EventSink sink);

    /// `at`: when they happened. The lines have the wall clock of that instant.
    void take(const std::vector<Event>& events, Instant at);
    /// The page at /api/v1/jobs/JOB/events?after=SEQUENCE; nothing for another target. JOB is percent-encoded.
    [[nodiscard]] std::optional<HttpPage> page(std::string_view target) const;

    /// EventStream::after.
    [[nodiscard]] std::optional<EventStream::Page> since(const std::string& job, const EventPosition& position,
                                                         std::size_t bytes_max) const {
        return stream_.after(job, {.sequence = position.sequence, .stream = position.stream}, bytes_max);
    }

  private:
    EventSink sink_;
    EventStream stream_;
};

}  // namespace muster::rendezvous
