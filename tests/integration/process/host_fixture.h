// A real guardian, a real host and a loop, driven until something is seen. No test sleeps: each waits for an event, or
// for the end of a pipe that every process of the tree holds, with a deadline.
#pragma once

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/process/posix_process_host.h"

namespace muster::agent::test {

/// For what takes milliseconds on a machine that has nothing else to do.
constexpr Duration patience = 60s;

/// A new directory that goes with everything in it. Others may enter it: some tests run as an ordinary user.
class TemporaryDirectory {
  public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

struct Pipe {
    Pipe();
    /// All that comes until the last writer is gone, or nothing if that has not happened within `limit`.
    std::optional<std::string> read(Duration limit) const;
    /// The same, when this object's own write end is closed.
    std::optional<std::string> read_to_end(Duration limit) {
        write_end.reset();
        return read(limit);
    }
    FileDescriptor read_end;
    FileDescriptor write_end;
};

/// Of this process: the one that serves, and the one that stands by.
std::vector<pid_t> guardians();
std::string contents(const std::string& path);
/// The worker program `actor` (tests/worker_programs/actor.c).
std::string actor();
/// A command that runs it, quietly: stdout and stderr are /dev/null.
WorkerCommand act(std::vector<std::string> arguments, std::uint32_t local_rank = 0);

class HostFixture {
  public:
    explicit HostFixture(GuardianConfig config = {}, Console console = {});
    ~HostFixture();

    /// Runs the loop until `seen` is true; false if that has not come within `limit`.
    bool run_until(const std::function<bool()>& seen, Duration limit = patience);
    void run_for(Duration time);
    /// Starts the command and waits for its end.
    WorkerEnded run(WorkerCommand command);
    /// Ends the host in order, as a launcher does.
    void end() { host.reset(); }

    template <class Event>
    [[nodiscard]] std::vector<Event> all() const {
        std::vector<Event> found;
        for (const auto& event : events) {
            if (const auto* one = std::get_if<Event>(&event)) found.push_back(*one);
        }
        return found;
    }
    template <class Event>
    bool wait_for(std::size_t count = 1, Duration limit = patience) {
        return run_until([&] { return all<Event>().size() >= count; }, limit);
    }

    boost::asio::io_context context;
    pid_t guardian_pid = 0;
    std::string cgroup;
    ClosingPtr<PosixProcessHost> host;
    std::vector<ProcessEvent> events;
};

}  // namespace muster::agent::test
