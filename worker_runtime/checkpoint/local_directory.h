// The rank files of one node on its own disk. The disk is faster than the directory that all hosts share, but it is
// lost with the node.
//
//   LOCAL/4f1d2c3b-5eed1234cafe4321/             one folder for each checkpoint directory (identity.h)
//      step_00000120.rank_00003.safetensors      a whole rank file (rank_file.h); *.new: being written
//
// The ranks agree at load time which files make up a save (memory_tier.h), as they do for the agents' copies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "worker_runtime/checkpoint/files/durable_file.h"
#include "worker_runtime/checkpoint/format/rank_file.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

namespace muster::runtime {

class LocalDirectory {
  public:
    /// Opens the folder `word` (see directory_word()) below `directory`. If it cannot be created, logs a warning, and
    /// each put() tries again. Folders of this path with another identity are kept, with a warning too.
    static LocalDirectory open(const std::string& directory, const std::string& word);

    /// Writes and flushes this rank's file from `memory`, as write_new_file() does. Then removes files of steps before
    /// the last whole() one, and of steps after this one, because training has gone back behind them. Of the steps put
    /// since then without a call of whole(), the newest is kept: this rank may have missed the result. Partial files of
    /// this rank are removed, also those of a killed process.
    Result<void> put(const RankFile& file, std::span<const std::byte> memory, const Interruption& interruption);

    /// Call this when all ranks have reported that their parts of `step` are safe, here or in the shared directory.
    /// Only then are earlier steps no longer needed.
    void whole(std::int64_t step) { last_step_ = step; }

    /// The newest step in the file names here, of any rank; -1 if there is none.
    [[nodiscard]] std::int64_t newest() const;

    /// Returns at most `most` files of any ranks as copies in memory, the newest steps first. Other processes of this
    /// node get other files until release(). Unreadable files are skipped with a warning.
    std::vector<OfferedSnapshot> take(std::size_t most);
    void release() { taken_.clear(); }

    [[nodiscard]] const std::string& folder() const { return folder_; }

  private:
    explicit LocalDirectory(std::string folder) : folder_(std::move(folder)) {}

    std::string folder_;
    std::int64_t last_step_ = -1;                   ///< last complete step
    std::int64_t last_put_ = -1, put_before_ = -1;  ///< complete or not
    std::vector<FileDescriptor> taken_;             ///< locked files
};

}  // namespace muster::runtime
