// Writes the flight records of this node's workers to disk after a round that failed. The workers share the memory with
// the agent (AgentChannel), so no worker has to be alive. A job that succeeds leaves no files.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::agent {

class FlightFiles {
  public:
    /// Copies what `memory` holds into the file `path`, in the place of that of an earlier round. The errors: io, and
    /// invalid_argument where `memory` is no memory file or one of more than 4 MiB.
    Result<void> keep(int memory, const std::string& path);
    /// Where the newest ones lie, for `muster flight`; empty: nothing was kept.
    [[nodiscard]] const std::string& directory() const { return directory_; }
    /// Removes every file that was kept. Errors are ignored.
    void remove_all();

  private:
    std::vector<std::string> paths_;
    std::string directory_;
};

}  // namespace muster::agent
