// The keeper of copies that outlive the worker, usually its agent.
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

    /// Gives the first `size_bytes` of `memory`, this rank's snapshot of `step` for the checkpoints in `directory` (an
    /// absolute path). They must stay unchanged until two others were given. Returns false if it was not taken within a
    /// few seconds; the one given before counts then.
    virtual bool give(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step,
                      const std::string& directory) = 0;

    /// The same for another rank's snapshot, which came from another node. It may be overwritten after two others of
    /// that rank were given.
    virtual bool give_copy(const FileDescriptor& memory, std::uint64_t size_bytes, std::int64_t step, int rank) = 0;

    /// Returns, once, the copies of the previous worker in this place: its newest two, and those of each rank whose
    /// copies it had. Fewer if there were fewer, or if they do not arrive within `limit`.
    virtual std::vector<OfferedSnapshot> take_offers(Duration limit) = 0;

    /// True if an operation of the round has failed, so that the others wait for this process to leave it.
    [[nodiscard]] virtual bool has_failed() const { return false; }
};

}  // namespace muster::runtime
