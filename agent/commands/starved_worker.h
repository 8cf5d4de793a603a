// Makes a worker run out of memory: moves it into its own control group beside a process that allocates more than the
// group's limit. The kernel kills the worker. Works with both versions of control groups, if this process may create
// groups that the memory controller reaches: below its own group, or beside it. (In version 2 a group with processes
// passes no controller on to groups below it.)
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/base/error.h"

namespace muster::agent {

class StarvedWorker {
  public:
    /// It ends some milliseconds later; the group is removed a second after that. `process` is its pidfd. The error
    /// says what is missing on this host.
    static Result<StarvedWorker> starve(std::int32_t pid, int process);

    /// The kernel has killed in this group.
    [[nodiscard]] bool was_killed() const;
    /// "its limit was 64 MiB (PATH), the most that was used 64 MiB".
    [[nodiscard]] std::string words() const;

  private:
    StarvedWorker(std::string directory, bool second) : directory_(std::move(directory)), second_(second) {}
    std::string directory_;
    bool second_;  ///< True for control groups version 2.
};

}  // namespace muster::agent
