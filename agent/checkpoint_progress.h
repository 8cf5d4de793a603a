// What a job has to go on from, for people and for the crash-loop guard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::agent {

struct NewestCheckpoint {
    std::int64_t step = 0;
    std::string folder;  ///< its name in the directory
};

/// The newest folder in `directory` that was committed as a checkpoint (worker_runtime/checkpoint). Its bytes are not
/// looked at: the workers do that. Nothing where there is none, or no such directory.
std::optional<NewestCheckpoint> newest_checkpoint(const std::string& directory);

}  // namespace muster::agent
