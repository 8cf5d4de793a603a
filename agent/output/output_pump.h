// Copies the workers' output from their pipes to files, console and report.
//
// One thread reads all pipes and writes the files; each console stream has its own thread (console_writer.h). A dead
// disk or a stopped terminal delays output and, through full pipes, the workers that print. It never delays the agent
// or its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/supervision/process_host.h"
#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

/// Where workers' output is shown: the launcher's own streams. Not owned; must stay open while the pump lives.
struct Console {
    int stdout_fd = 1;
    int stderr_fd = 2;
};

/// What a worker is given as its streams; invalid: the guardian's own.
struct WorkerStreams {
    FileDescriptor stdout_fd;
    FileDescriptor stderr_fd;
};

/// Calls come from one thread; the pump's own thread starts with the first stream that needs it.
class OutputPump {
  public:
    explicit OutputPump(Console console);
    /// Stops reading. flush() first. Where a log file takes nothing, it waits 5 s, and says so.
    ~OutputPump();
    OutputPump(const OutputPump&) = delete;
    OutputPump& operator=(const OutputPump&) = delete;

    /// Opens what the two plans ask for, under the number `worker`, which is not used again. The caller gives the
    /// descriptors to the worker and closes its copies. On failure nothing stays open; `stage` of the result names the
    /// file, or the call for which the system had no descriptor, memory or thread left.
    boost::system::result<WorkerStreams, NotStarted> open(std::uint64_t worker, const WorkerCommand& command);

    /// ProcessHost::change_owner().
    void change_owner(std::uint64_t worker, const LogOwner& owner);

    /// The worker has ended: `settled` is called, from the pump's thread, as soon as all that it printed has been read,
    /// and 100 ms later at most (a grandchild may hold the pipe of a terminal). The streams are read on until their
    /// end.
    void settle(std::uint64_t worker, std::function<void()> settled);

    /// What was kept of a worker's stderr, once.
    std::string take_tail(std::uint64_t worker);

    /// True when the console has taken all that was read so far, within `limit`.
    bool flush(Duration limit);

  private:
    class Body;
    std::shared_ptr<Body> body_;
};

}  // namespace muster::agent
