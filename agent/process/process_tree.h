// Finds the descendants of a process in /proc. The result is a snapshot: processes start and end meanwhile, so a caller
// that kills repeats until none is left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "rendezvous/base/file_descriptor.h"

namespace muster::agent {

struct ProcessFacts {
    pid_t pid = 0;
    pid_t parent = 0;
    pid_t session = 0;
    char state = '?';                        ///< State of /proc/PID/stat. 'Z' and 'X' are dead.
    std::uint64_t start_time = 0;            ///< Clock ticks since boot. Distinguishes two processes with the same pid.
    std::uint64_t cpu_ticks = 0;             ///< CPU time used so far.
    std::uint64_t ended_children_ticks = 0;  ///< CPU time of the children that have ended, and of theirs.

    [[nodiscard]] bool alive() const { return state != 'Z' && state != 'X'; }
};

/// One line of /proc/PID/stat. A program may have blanks and parentheses in its name.
std::optional<ProcessFacts> parse_stat(std::string_view line);

/// Descendants of `root` among `all`, parents before their children; zombies too, `root` not.
std::vector<ProcessFacts> descendants_of(pid_t root, std::vector<ProcessFacts> all);

/// The facts of every process that can be seen, in no order.
std::vector<ProcessFacts> all_processes();

/// The children of all threads of `pid`, zombies too, as the kernel lists them. That is cheaper than all_processes(),
/// but not every kernel has these lists. nullopt: this one has not, the process is gone, or /proc cannot be read.
std::optional<std::vector<pid_t>> listed_children(pid_t pid);

/// What a terminal's SIGINT would reach beside `leader` and is meant for: the programs that it runs, when it is a shell
/// that catches SIGINT (sh, bash and others do while they wait for a program, and end only after it), and what shells
/// among them run. Processes that left the leader's session are not looked at.
std::vector<pid_t> programs_of_waiting_shell(pid_t leader);

/// A descriptor of the process, which can be read at its end. Invalid with an errno: ENOSYS before Linux 5.3.
FileDescriptor open_pidfd(pid_t pid);

/// Sends `signal` to exactly the process that `facts` were read from, not to a later one with its number.
void signal_process(const ProcessFacts& facts, int signal);

}  // namespace muster::agent
