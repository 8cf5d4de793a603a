// Children that a stopped worker waits for and that have not received its signal.
//
// A stop signal goes to a worker's leader only, so that data loaders live while a script saves. A Python process joins
// its multiprocessing children when its interpreter ends. A child without the signal would hold it until the end of the
// grace. Such a child gets the signal too, if all of these conditions hold:
//   * the leader's main thread is blocked in wait4() or waitid() for this child, so it does nothing else;
//   * the child is older than the stop signal, so it is not a tool started by the signal's handler;
//   * the child is part of the leader's program: a fork without exec, or started by multiprocessing. A leader that
//   waits
//     for another program passes signals on itself;
//   * the wait has lasted for `idle`, in which neither the child nor its descendants used the CPU or were blocked in
//     I/O, or for `busy` in any case.
// A child that got the signal and waits for a child of its own is treated like a leader.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "agent/process/process_tree.h"
#include "agent/supervision/process_host.h"

namespace muster::agent {

struct AwaitedChild {
    ProcessFacts facts;
    std::uint64_t cpu_ticks = 0;  ///< CPU time used by it and its descendants.
    bool in_io = false;           ///< True if one of them is in state D.
};

/// The clock of the rule. Pure.
class AwaitedChildren {
  public:
    explicit AwaitedChildren(AwaitedTimeouts patience) : patience_(patience) {}

    /// One look: `seen` are the children that are awaited now. Returns those whose time has come, each once. A wait
    /// that two looks do not both see begins anew.
    std::vector<ProcessFacts> due(const std::vector<AwaitedChild>& seen, Instant now);
    /// Those that were returned and may wait for children in turn.
    [[nodiscard]] std::vector<pid_t> told() const;

  private:
    struct Wait {
        std::uint64_t start_time = 0;
        std::uint64_t cpu_ticks = 0;
        Instant since;
        Instant idle_since;
        bool told = false;
    };
    AwaitedTimeouts patience_;
    std::map<pid_t, Wait> waits_;
};

/// The process for whose end alone the thread waits whose /proc/PID/syscall this is; 0: it does something else. Pure.
pid_t awaited_pid(std::string_view syscall_line);

/// What `waiters` wait for and the rule allows. `born_before`: as ProcessFacts::start_time.
std::vector<AwaitedChild> find_awaited(const std::vector<pid_t>& waiters, std::uint64_t born_before);

/// Now, in the unit of ProcessFacts::start_time.
std::uint64_t ticks_since_boot();

}  // namespace muster::agent
