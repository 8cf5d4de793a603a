// Writes copies in an agent's memory to disk: the copies of ended workers become parts of a checkpoint, and a
// checkpoint when the parts of all ranks exist.
//
// Every node of the job does this with its own copies, without coordination. They write into the draft of the save
// that the copies belong to (names.h), which is the one that the workers were writing. Parts that exist and are
// undamaged are kept. The node that finds all parts completes the draft; if none does, the next start does
// (tidy_up).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/checkpoint/format/names.h"

namespace muster::runtime {

/// A memory file that begins with a rank file of `size_bytes`. It is not written any more.
struct KeptCopy {
    FileDescriptor memory;
    std::uint64_t size_bytes = 0;
};

struct PersistTerms {
    std::string directory;
    std::int64_t round = 0;  ///< the last round whose workers ended here; the claim of a later round is respected
    Instant deadline{};
    /// The job succeeded, so the other nodes write their parts too: wait for them until the deadline.
    bool wait_for_others = false;
};

struct Persisted {
    std::int64_t step = -1;                      ///< -1: nothing to do, the disk has a checkpoint as new
    std::optional<CheckpointName> checkpoint{};  ///< empty: this node's parts are on disk, others are missing
};

/// Writes the newest save to disk if it is newer than every checkpoint there. Saves that are complete in `copies` come
/// first, then the newest. Damaged copies are skipped with a warning. Errors: refused (the directory now belongs to
/// another job or a later round), already_exists (its claimant has not ended by the deadline), bad_frame (no copy is
/// valid), timed_out, io. Unfinished work stays as a draft. If the disk has a step as new as the heads of all copies,
/// only these heads are read.
Result<Persisted> persist_copies(const PersistTerms& terms, std::vector<KeptCopy> copies);

}  // namespace muster::runtime
