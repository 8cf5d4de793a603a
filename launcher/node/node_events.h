// The events of this launcher: --events FILE, and torchrun's lines on stderr (--event-log-handler console).
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "agent/supervision/supervisor.h"
#include "agent/supervision/torch_events.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/dialects/event_tap.h"
#include "rendezvous/events/event_stream.h"
#include "rendezvous/events/files/event_file.h"

namespace muster::launcher {

/// While it lives, each line that the launcher logs or prints and of which no event was made is an event.
class NodeEvents {
  public:
    /// `file` is the path of --events with its names inserted. Empty: no file. The error names the obstacle.
    static Result<std::unique_ptr<NodeEvents>> open(const LaunchConfig& config, const std::string& file,
                                                    const std::string& host);

    ~NodeEvents();
    NodeEvents& operator=(NodeEvents&&) = delete;

    /// Thread-safe, because any thread logs.
    void take(Event event);
    /// The last event of this node. `outcome` and `text` are the report's.
    void ended(bool succeeded, const std::string& outcome, const std::string& text);
    /// Takes the events of the daemon in this process: they come to the same file. Empty without a file.
    [[nodiscard]] rendezvous::EventSink daemon_sink() const;

  private:
    NodeEvents(const LaunchConfig& config, std::unique_ptr<EventFile> file, const std::string& host);

    std::mutex mutex_;
    const std::string job_;
    const std::unique_ptr<EventFile> file_;
    EventStream stream_;
    std::unique_ptr<agent::TorchEvents> torch_;  ///< Null: torchrun's lines are not wanted.
    ConsoleWriter torch_out_;  ///< Without the time that the log puts before its lines: torch's handler puts none.
    Round round_ = no_round;
};

}  // namespace muster::launcher
