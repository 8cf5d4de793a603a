// An agent in a process of its own, for tests that kill or stop it.
#pragma once

#include <string>
#include <vector>

#include "agent/process/guardian.h"
#include "tests/integration/process/host_fixture.h"

namespace muster::agent::test {

constexpr uid_t nobody = 65534;

/// Root takes on that user for the rest of this process; for others nothing changes.
void become(uid_t user);

/// Forks a process that runs a guardian and these workers, feeding it, until it is killed. Every process below it holds
/// the write end of one pipe as its stdout, so that the pipe's end means: nothing is left.
class Driver {
  public:
    struct Plan {
        GuardianConfig guardian;
        Duration feed_every = 20ms;
        uid_t user = 0;  ///< not 0: becomes that user first (the test runs as root then)
        std::vector<WorkerCommand> workers;
    };
    /// Returns when each worker has printed "ready".
    explicit Driver(Plan plan);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    void send(int signal) const;
    /// True when every process that held the pipe is gone, the guardian included, within `limit`.
    bool tree_ended(Duration limit);

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] const std::string& cgroup() const { return cgroup_; }

  private:
    [[noreturn]] void run(Plan plan, int life, int report);

    pid_t pid_ = 0;
    std::string cgroup_;
    Pipe life_;
};

/// A command whose stdout is the driver's life pipe.
WorkerCommand holding(std::vector<std::string> arguments, std::uint32_t local_rank = 0);

}  // namespace muster::agent::test
