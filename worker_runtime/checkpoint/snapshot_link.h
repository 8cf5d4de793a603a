// Where copies of the state outlive the worker: its agent, in most cases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"

namespace muster::runtime {

/// A memory file that begins with a whole rank file (rank_file.h).
struct OfferedSnapshot {
    FileDescriptor memory;
    std::uint64_t size_bytes = 0;
};

class SnapshotLink {
  public:
    virtual ~SnapshotLink() = default;

    /// The first `size_bytes` of `memory` are this rank's snapshot of `step`, for the checkpoints in `directory` (an
    /// absolute path). They must not be written again before two others were given. False: it was not taken, and what
    /// was given before counts.
    virtual bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step,
                      const std::string& directory) = 0;

    /// The same of another rank's snapshot, which came from another node. It may be written again when two others of
    /// that rank were given.
    virtual bool give_copy(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, int rank) = 0;

    /// What the worker in this one's place gave in a round before: its newest two, and of each rank that it had copies
    /// of; once. Fewer where there were fewer,
    /// or they do not come within `limit`.
    virtual std::vector<OfferedSnapshot> take_offers(Duration limit) = 0;
};

}  // namespace muster::runtime
