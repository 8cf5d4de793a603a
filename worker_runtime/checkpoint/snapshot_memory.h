// The memory that a checkpoint is written from: a memfd whose pages are allocated before the first copy, and pinned if
// this process uses a GPU, so that the GPU copies to it at full rate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster::runtime {

class SnapshotMemory;

/// Three, because an agent keeps the last two copies, which must stay intact while the next one is made.
using SnapshotMemories = std::array<SnapshotMemory, 3>;

class SnapshotMemory {
  public:
    SnapshotMemory() = default;
    SnapshotMemory(SnapshotMemory&&) noexcept = default;
    SnapshotMemory& operator=(SnapshotMemory&&) = delete;  // would unmap the old segment before its pin is destroyed

    /// If the memory is smaller than `bytes`, replaces it by one that is slightly larger than `bytes`; the content is
    /// lost. limit_exceeded: too little memory; then it is empty. Memory that cannot be pinned gives a log line.
    Result<void> grow(std::uint64_t bytes);

    /// Keeps the memory of a round that has failed until the process makes other memory; nobody can get it any more. To
    /// unmap it takes 0.07 ms and more for each MiB, which would delay the next round. Thread-safe.
    static void leave(SnapshotMemories memories);

    [[nodiscard]] std::byte* data() const { return segment_.data(); }
    [[nodiscard]] std::size_t size_bytes() const { return segment_.size_bytes(); }
    [[nodiscard]] const FileDescriptor& descriptor() const { return segment_.descriptor(); }

  private:
    SharedSegment segment_;
    std::unique_ptr<HostPin> pin_;  // destroyed before the segment is unmapped
};

}  // namespace muster::runtime
