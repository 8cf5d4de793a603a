#include "agent/checkpoint_progress.h"

#include <filesystem>
#include <system_error>

#include "worker_runtime/checkpoint/names.h"

namespace muster::agent {

std::optional<NewestCheckpoint> newest_checkpoint(const std::string& directory) {
    std::optional<runtime::CheckpointName> newest;
    std::error_code failure;
    for (std::filesystem::directory_iterator at(directory, failure), end; !failure && at != end;
         at.increment(failure)) {
        const auto name = runtime::parse_checkpoint_name(at->path().filename().string());
        if (name && (!newest || *newest < *name)) newest = name;
    }
    if (!newest) return std::nullopt;
    return NewestCheckpoint{.step = newest->step, .folder = runtime::to_string(*newest)};
}

}  // namespace muster::agent
