// Finds the newest complete checkpoint, for the report and for the check that restarts make progress.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/time.h"

namespace muster::agent {

struct NewestCheckpoint {
    std::int64_t step = 0;
    std::string folder;  ///< Name of the folder in the directory.
};

/// The newest folder in `directory` that was committed as a checkpoint (worker_runtime/checkpoint). Its bytes are not
/// looked at: the workers do that. Nothing where there is none, or no such directory.
std::optional<NewestCheckpoint> newest_checkpoint(const std::string& directory);

/// The newest step of which `local`, a disk of this node, has as many ranks' files as the node has workers, for the
/// checkpoints in `directory`. Nothing of what it has from before that directory was emptied or replaced. Whether all
/// nodes have theirs is found out by the workers.
std::optional<NewestCheckpoint> newest_local_save(const std::string& local, const std::string& directory,
                                                  std::uint32_t worker_count);

/// The same for a loop that must not wait: a thread looks, and a file system that hangs keeps that alone.
class CheckpointProgress {
  public:
    using FindNewest = std::function<std::optional<NewestCheckpoint>(const std::string& directory)>;
    explicit CheckpointProgress(Duration limit, FindNewest look = newest_checkpoint);

    /// What is there now; what it saw the last time where there is no answer within `limit`, with a warning. While an
    /// earlier look hangs, at once.
    std::optional<NewestCheckpoint> newest(const std::string& directory);

    /// Begins a look without waiting for it. False: an earlier one goes on, so this has to be asked again.
    bool begin(const std::string& directory) { return has_ended() && start(directory); }
    /// Whether the look has ended. Then known() is what it saw.
    bool has_ended();
    [[nodiscard]] const std::optional<NewestCheckpoint>& known() const { return last_; }

  private:
    struct Answer;
    bool start(const std::string& directory);
    Duration limit_;
    FindNewest find_newest_;
    std::optional<NewestCheckpoint> last_;
    std::shared_ptr<Answer> under_way_;  // null: no thread looks
    bool has_timed_out_ = false;         // nobody waits for that one any more
};

}  // namespace muster::agent
