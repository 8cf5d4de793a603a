#include "worker_runtime/checkpoint/snapshot_memory.h"

#include <mutex>
#include <utility>
#include <vector>

#include "rendezvous/base/log.h"
#include "worker_runtime/checkpoint/format/rank_file.h"

namespace muster::runtime {

namespace {

/// The memories of failed rounds.
struct Left {
    std::mutex mutex;
    std::vector<SnapshotMemory> memories;

    static Left& of_process() {
        static auto* const left = new Left;  // never destroyed: a checkpointer may end after all static objects
        return *left;
    }
};

void unmap_left() {
    std::vector<SnapshotMemory> unused;  // outlives the lock: others need not wait for the unmapping
    auto& left = Left::of_process();
    const std::lock_guard lock(left.mutex);
    unused.swap(left.memories);
}

}  // namespace

void SnapshotMemory::leave(SnapshotMemories memories) {
    auto& left = Left::of_process();
    const std::lock_guard lock(left.mutex);
    for (auto& memory : memories) {
        if (memory.size_bytes() == 0) continue;
        // A data loader that the next round forks would keep the pages by it, long after this process has unmapped
        // them.
        memory.segment_.close_descriptor();
        left.memories.push_back(std::move(memory));
    }
}

Result<void> SnapshotMemory::grow(std::uint64_t bytes) {
    if (size_bytes() >= bytes) return {};
    pin_.reset();
    segment_ = {};
    unmap_left();
    // A little more than needed, so that a longer text beside the tensors causes no new allocation.
    segment_ = MUSTER_TRY(SharedSegment::create(in_whole_blocks(bytes) + 16 * file_alignment,
                                                "the copy that a checkpoint is written from"));
    auto pin = pin_host_memory(segment_.data(), segment_.size_bytes());
    if (pin) {
        pin_ = std::move(*pin);
    } else {
        log(LogLevel::warning, pin.error().context, "; copies from the GPU into checkpoints are slower without it");
    }
    return {};
}

}  // namespace muster::runtime
