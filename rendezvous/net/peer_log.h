// Warnings that any peer can cause, as often as it likes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "rendezvous/base/time.h"

namespace muster::rendezvous {

/// All of them are logged. Only one a minute is an event, which counts the others: files of events have room for what
/// happens to jobs.
class PeerLog {
  public:
    void warn(std::string_view line, Instant now);

  private:
    std::optional<Instant> told_at_;
    std::uint64_t untold_count_ = 0;
};

}  // namespace muster::rendezvous
