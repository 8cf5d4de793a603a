// A checkpoint in the memory of the ranks: each rank has the copies of the previous worker in its place. If together
// they are complete, the round continues from them without reading a disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muster/checkpoint.h"
#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/checkpoint/files/verify.h"
#include "worker_runtime/checkpoint/format/manifest.h"
#include "worker_runtime/checkpoint/snapshot_link.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster::runtime {

class MemoryTier {
  public:
    /// A collective: every rank brings the snapshots that it was offered, its own and copies of others', at most
    /// offers_max. Copies that are not a valid rank file are ignored. Afterwards all ranks know the newest step of
    /// which they have all parts. `timeout`: how much longer than this rank another one may need to receive and read
    /// its offers.
    static Result<MemoryTier> gather(Communicator& world, std::vector<OfferedSnapshot> offers,
                                     const std::string& directory_word, Duration timeout);

    /// The step, or -1 if there is none.
    [[nodiscard]] std::int64_t step() const { return step_; }
    /// The manifest of these parts; the same on all ranks. Its checksums of whole files are 0.
    [[nodiscard]] const Manifest& manifest() const { return manifest_; }

    /// A collective: fills each rank's tensors, which must match the manifest. A rank that has a part which another one
    /// needs sends it to all.
    Result<void> load(Communicator& world, const std::vector<StateTensor>& tensors) const;

  private:
    /// One rank's part of the saved world, and the rank of this world that has it.
    struct Part {
        int holder = -1;
        std::uint64_t data_begin = 0, size_bytes = 0;
        SharedSegment memory = {};  ///< empty on other ranks than the holder
    };

    Result<void> share_heads(Communicator& world);
    [[nodiscard]] Result<std::vector<std::uint8_t>> parts_to_send(Communicator& world,
                                                                  const std::vector<StateTensor>& tensors) const;
    static Result<void> read_part(const Part& part, const std::vector<ByteRange>& ranges, const ByteSink& sink);
    Result<void> send_part(Communicator& world, const Part& part, const std::vector<ByteRange>& ranges,
                           const ByteSink& sink) const;

    std::int64_t step_ = -1;
    std::vector<Part> parts_;  ///< by rank of the saved world
    Manifest manifest_;
};

}  // namespace muster::runtime
