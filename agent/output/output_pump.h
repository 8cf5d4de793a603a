// Copies the workers' output from their pipes to files, console and report.
//
// One thread reads all pipes and writes the files; each console stream has its own thread (console_writer.h). A dead
// disk or a stopped terminal delays output and, through full pipes, the workers that print. It never delays the agent
// or its end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/output/line_fold.h"
#include "agent/output/log_files.h"
#include "agent/output/output_stream.h"
#include "agent/supervision/process_host.h"
#include "rendezvous/base/closing_ptr.h"
#include "rendezvous/base/console_writer.h"
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

/// Calls come from one thread; the pump's own thread starts with the first stream that needs it. `mutex_` guards the
/// members under it, which both use.
class OutputPump : public std::enable_shared_from_this<OutputPump> {
  public:
    static ClosingPtr<OutputPump> make(Console console) {
        return closing(std::shared_ptr<OutputPump>(new OutputPump(console)));
    }
    /// Stops reading. Waits up to 5 s for the log files, then up to 5 s for the console, and logs what is missing.
    void close();

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

  private:
    struct Streams {
        std::shared_ptr<OutputStream> out;
        std::shared_ptr<OutputStream> err;
    };
    struct Settling {
        std::function<void()> settled;
        Instant deadline;
        std::vector<std::shared_ptr<OutputStream>> streams{};
    };

    explicit OutputPump(Console console);
    boost::system::result<FileDescriptor, NotStarted> open_stream(std::uint64_t worker, const WorkerCommand& command,
                                                                  const StreamPlan& plan);
    void forget(std::uint64_t worker) { by_worker_.erase(worker); }
    std::optional<NotStarted> begin();
    std::optional<NotStarted> adopt(std::uint64_t worker, bool is_stdout, OutputStream::Parts parts);
    void run();
    void take_arrivals();
    void take_questions();
    void move_arrived();
    void drain(Settling& settling);
    void read_ready(OutputStream* stream);
    void read_last();
    void drop(OutputStream* stream);
    void finish_settled(Instant now);
    void show_partials(Instant now);
    void show_folded(Instant now, bool all);
    [[nodiscard]] bool flush_console();
    [[nodiscard]] int timeout_ms(Instant now) const;
    void wake();

    Console console_;
    ConsoleWriter stdout_writer_;
    ConsoleWriter stderr_writer_;
    LineFold stdout_fold_;  // the pump's thread only
    LineFold stderr_fold_;
    LogFiles files_;
    std::map<std::uint64_t, Streams> by_worker_;  // for tails; the caller's thread only
    FileDescriptor epoll_;
    FileDescriptor wake_;
    std::thread thread_;

    std::mutex mutex_;
    std::vector<std::shared_ptr<OutputStream>> arrived_;
    std::vector<Settling> asked_;
    std::atomic<bool> stop_ = false;
    bool stopped_ = false;
    std::condition_variable has_stopped_;

    // The pump's thread only.
    std::vector<std::shared_ptr<OutputStream>> streams_;
    std::vector<Settling> settling_;
    std::string buffer_;
};

}  // namespace muster::agent
