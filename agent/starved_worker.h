// A worker for which memory runs out: it is moved into a control group of its own, beside a process that
// asks for more memory than the group may have, and of the two it is the one that the kernel kills. Works with both
// versions of control groups, where this process may make groups below its own and the memory controller reaches them.
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

  private:
    explicit StarvedWorker(std::string counter) : counter_(std::move(counter)) {}
    std::string counter_;  ///< its file with a line "oom_kill N"
};

}  // namespace muster::agent
