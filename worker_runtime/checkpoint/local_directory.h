// The rank files of one node on a disk of its own: faster than the directory that all hosts share, and gone with the
// node.
//
//   LOCAL/4f1d2c3b-5eed1234cafe4321/             one folder for each checkpoint directory (identity.h)
//      step_00000120.rank_00003.safetensors      a whole rank file (rank_file.h); *.new: being written
//
// Whose files make up a save is agreed by the ranks when they load (memory_tier.h), as it is for the agents' copies.
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
    /// The folder below `directory` for `word`, as directory_word() makes it. Where it cannot be made, a warning: each
    /// put() tries again. Folders that this path had with another identity are left alone, with a warning too.
    static LocalDirectory open(const std::string& directory, const std::string& word);

    /// Brings this rank's file there, flushed, from memory as write_new_file() takes it. Files of steps before the last
    /// whole() one go, and of later ones than this: training has gone back behind those. Of steps put since then that
    /// were not told to be whole the newest stays: this rank may have missed the word. No half file of this rank stays,
    /// be it this process's or that of one that was killed.
    Result<void> put(const RankFile& file, std::span<const std::byte> memory, const Interruption& interruption);

    /// All ranks have told that their part of `step` is safe, here or in the directory that all share: only now is a
    /// step before it of no more use.
    void whole(std::int64_t step) { last_step_ = step; }

    /// The newest step that a file here is named by, of whatever rank; -1: there is none.
    [[nodiscard]] std::int64_t newest() const;

    /// At most `most` files as copies in memory, the newest steps first, of whatever ranks; other processes of this
    /// node get others, until release(). What cannot be read is left out, with a warning.
    std::vector<OfferedSnapshot> take(std::size_t most);
    void release() { taken_.clear(); }

    [[nodiscard]] const std::string& folder() const { return folder_; }

  private:
    explicit LocalDirectory(std::string folder) : folder_(std::move(folder)) {}

    std::string folder_;
    std::int64_t last_step_ = -1;                   ///< that was whole
    std::int64_t last_put_ = -1, put_before_ = -1;  ///< whole or not
    std::vector<FileDescriptor> taken_;             ///< locked
};

}  // namespace muster::runtime
