// From an agent's memory to the disk: the copies of workers that have ended become parts of a checkpoint, and when the
// parts of all ranks are there, a checkpoint.
//
// Every node of the job does this with the copies that it has, each for itself. They meet in the draft of the save that
// the copies are of (names.h), the one in which those workers were writing themselves: a part that is there and whole
// is taken as it is. Whoever finds all of them finishes the draft; if nobody comes to it, the next start does
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

/// A memory file that begins with a rank file of `size_bytes`. Nobody writes to it any more.
struct KeptCopy {
    FileDescriptor memory;
    std::uint64_t size_bytes = 0;
};

struct PersistTerms {
    std::string directory;
    std::int64_t round = 0;  ///< the last one whose workers ended here: what later ones have claimed is theirs
    Instant deadline{};
    /// The job succeeded, so the other nodes bring their parts too: they are waited for until the deadline.
    bool wait_for_others = false;
};

struct Persisted {
    std::int64_t step = -1;                      ///< -1: nothing was to be done, the disk has it all
    std::optional<CheckpointName> checkpoint{};  ///< empty: this node's parts are there, other nodes' are not
};

/// Brings the newest save to the disk that is newer than every checkpoint there. Of several saves those go first that
/// are whole in `copies`, then the newest. Copies that are damaged are left out, with a warning. Errors: refused (the
/// directory is another job's or a later round's by now), already_exists (who claimed it has not ended by the
/// deadline), bad_frame (no copy is whole), timed_out, io. Whatever is left half done is a draft. Where the disk has a
/// step as new as the heads of all copies name, nothing else of them is read.
Result<Persisted> persist_copies(const PersistTerms& terms, std::vector<KeptCopy> copies);

}  // namespace muster::runtime
