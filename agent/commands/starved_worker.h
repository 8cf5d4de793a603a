// A worker for which memory runs out: it is moved into a control group of its own, beside a process that
// asks for more memory than the group may have, and of the two it is the one that the kernel kills. Works with both
// versions of control groups, where this process may make groups that the memory controller reaches: below its own
// group, or beside it. (In version 2 a group that holds processes hands no controller on to groups below it.)
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
