// musterd --events DIR: the files, and what musterd logs of no job.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/dialects/event_tap.h"
#include "rendezvous/events/event.h"
#include "rendezvous/events/files/event_file.h"

namespace muster::rendezvous {

/// While it lives, each line of the log of which no event was made is an event of no job.
class DaemonEvents {
  public:
    /// Empty: no files. The error is for the user.
    static Result<std::unique_ptr<DaemonEvents>> open(const std::string& directory);
    ~DaemonEvents();
    DaemonEvents& operator=(DaemonEvents&&) = delete;

    /// For the events of jobs. Empty without files. It must not be used after this has ended.
    [[nodiscard]] EventSink sink() const;
    /// Thread-safe.
    void tell(EventKind kind, std::string_view text);

  private:
    explicit DaemonEvents(std::unique_ptr<EventFile> file);

    const std::unique_ptr<EventFile> file_;
    const std::string stream_;
    std::mutex mutex_;
    std::uint64_t sequence_ = 0;
};

}  // namespace muster::rendezvous
