// The memory that a checkpoint is written from: a memfd whose pages are there before the first copy, and that a GPU of
// this process, where it has one, can copy to at its full rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rendezvous/base/error.h"
#include "worker_runtime/nccl/plugin.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster::runtime {

class SnapshotMemory {
  public:
    /// Where it holds less: other memory of a little more than `bytes`, and what it held is gone. limit_exceeded where
    /// there is too little; then it holds nothing. Memory that cannot be pinned is a line in the log.
    Result<void> grow(std::uint64_t bytes);

    [[nodiscard]] std::byte* data() const { return segment_.data(); }
    [[nodiscard]] std::size_t size_bytes() const { return segment_.size_bytes(); }
    [[nodiscard]] const FileDescriptor& descriptor() const { return segment_.descriptor(); }

  private:
    SharedSegment segment_;
    std::unique_ptr<HostPin> pin_;  // goes first
};

}  // namespace muster::runtime
