// The thread that sends this rank's snapshots to a rank on the next node, and gives its own agent the snapshots that
// other ranks send here. It has its own communicator: training never waits for it. If it fails, only the copies of this
// round are lost.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "muster/communicator.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_runtime/checkpoint/snapshot_link.h"
#include "worker_runtime/shared_memory/shared_segment.h"

namespace muster::runtime {

class NeighbourCopies {
  public:
    /// A rank that sends its copies here.
    struct Source {
        int group_rank = 0;
        int rank = 0;  ///< in the world
    };
    struct Terms {
        std::unique_ptr<Communicator> group;  ///< nobody else's
        int target = 0;                       ///< who gets this rank's, in the group
        int ranks_here = 1;                   ///< of the world on this node, which all take memory at the same time
        std::vector<Source> sources;
        std::shared_ptr<SnapshotLink> snapshots;
        std::uint64_t bytes_per_second = 0;  ///< that are sent at most; 0: as fast as they go
    };

    /// Returns an error if the system cannot start a thread.
    static Result<std::unique_ptr<NeighbourCopies>> start(Terms terms);
    /// Abandons the copy in progress.
    ~NeighbourCopies();

    /// Call it on every rank of the group for the same snapshots, while idle. `memory` (a whole rank file; empty if
    /// this rank has none) must stay untouched until idle().
    void begin(std::span<const std::byte> memory, std::int64_t step);
    /// True if no copy is in progress here; always true after a failure.
    [[nodiscard]] bool idle() const;
    /// Waits until it is idle, at most until its deadlines.
    void finish();
    /// The newest step for which the next node has this rank's copy; -1: none.
    [[nodiscard]] std::int64_t copied_step() const;

  private:
    struct Image {
        std::span<const std::byte> memory;
        std::int64_t step = -1;
    };
    /// What goes ahead of a snapshot.
    struct Head {
        std::uint64_t size_bytes = 0;
        std::int64_t step = -1;
    };
    /// What comes from one source. Its agent keeps the newest two, so that three go round.
    struct Incoming {
        Source source;
        Head head;
        std::array<SharedSegment, 3> rooms;
        std::size_t turn = 0;
        std::vector<std::byte> scratch;  ///< takes what there is no room for
        std::uint8_t taken = 0;          ///< by the agent
        std::span<std::byte> chunk(std::uint64_t at);
    };

    explicit NeighbourCopies(Terms terms);
    void run();
    Result<bool> exchange(const Image& image);
    Result<void> exchange_bytes(const Image& image);
    Result<bool> exchange_receipts();
    [[nodiscard]] Result<SharedSegment> take_memory(std::uint64_t size) const;
    void make_room(Incoming& incoming) const;
    Result<void> pace(Instant began, std::uint64_t sent);

    Terms terms_;
    std::vector<Incoming> incoming_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Image> image_;  // under way
    std::int64_t copied_step_ = -1;
    bool failed_ = false, stopping_ = false;
    std::thread thread_;
};

}  // namespace muster::runtime
