// The implementation of Checkpointer: checkpointer.cpp opens, checkpointer_load.cpp and checkpointer_forward.cpp load,
// checkpointer_save.cpp saves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/checkpoint.h"
#include "worker_runtime/checkpoint/agreement.h"
#include "worker_runtime/checkpoint/format/manifest.h"
#include "worker_runtime/checkpoint/local_directory.h"
#include "worker_runtime/checkpoint/memory_tier.h"
#include "worker_runtime/checkpoint/neighbour_copies.h"
#include "worker_runtime/checkpoint/save_worker.h"
#include "worker_runtime/checkpoint/snapshot_link.h"
#include "worker_runtime/checkpoint/snapshot_memory.h"

namespace muster::runtime {

/// Maximum wait for the agent's offers, which it sends as soon as the channel is open.
inline constexpr Duration offer_wait = std::chrono::seconds(5);

inline double milliseconds_since(Instant then) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - then).count();
}

/// Each function is a collective or local to this rank, as documented for the function of Checkpointer that calls it.
class CheckpointerBody {
  public:
    CheckpointerBody(Communicator& world, Checkpointer::Identity identity, CheckpointOptions options,
                     std::shared_ptr<SnapshotLink> snapshots)
        : world_(world),
          identity_(std::move(identity)),
          options_(std::move(options)),
          snapshots_(std::move(snapshots)) {}

    Result<void> open(std::unique_ptr<Store> board, const CheckpointNeighbours& neighbours);
    /// Loads into the tensors that `place` creates; if `place` is empty, into those of `state`.
    /// If `clean` has a step, `state` has its tensors already.
    Result<std::optional<LoadReport>> load(CheckpointState& state, const PlaceTensors& place, CleanStep& clean);
    Result<void> save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy);
    Result<void> snapshot(std::int64_t step, const CheckpointState& state);
    Result<void> reserve(const CheckpointState& state);
    Result<void> finish();
    std::vector<SaveReport> reports() { return worker_->take_reports(); }
    [[nodiscard]] std::int64_t copied_step() const { return copies_ ? copies_->copied_step() : -1; }
    [[nodiscard]] WhenBusy when_busy() const { return options_.when_busy; }

    /// Ends the checkpointer. If a disk hangs, this waits for the deadlines of the save in progress.
    static void let_go(std::unique_ptr<CheckpointerBody> body);

  private:
    void leave_memories();
    [[nodiscard]] Result<void> still_needed() const;
    /// The agreed actions of all ranks for one save.
    struct Go {
        bool begin = false;
        bool copy = false;    ///< send the copy to the next node
        bool shared = false;  ///< write to the shared directory
    };

    [[nodiscard]] Result<std::optional<LocalDirectory>> open_local(const std::string& identity);
    /// The nearest source of a save's parts, without the shared directory.
    enum class Nearness { memory, local_disk };
    [[nodiscard]] Result<std::pair<MemoryTier, Nearness>> gather_near();
    Result<std::optional<LoadReport>> load_newest(CheckpointState& state, const PlaceTensors& place, CleanStep& clean);
    Result<Manifest> layout_of(int rank, std::int64_t step, const CheckpointState& state) const;
    /// `refused`: a state of this job has been trained, but not all ranks can continue from it.
    enum class Forward { taken, refused, all_are_new };
    Result<Forward> try_forward(CheckpointState& state, const PlaceTensors& place, CleanStep& clean,
                                LoadReport& report);
    /// The directory as rank 0 found or created it.
    struct Directory {
        SaveWorker::Terms terms = {};
        std::string identity = {};  // empty: IDENTITY is missing and cannot be written
    };
    Result<Directory> take_directory() const;
    Result<void> reach_neighbours(const CheckpointNeighbours& neighbours);
    [[nodiscard]] Result<Agreement> agree(const Result<void>& own) const {
        return all_agree(world_, own, options_.persist_timeout);
    }
    [[nodiscard]] Result<std::string> receive_from_rank_0(const Result<std::string>& own) const {
        return from_rank_0(world_, own, options_.persist_timeout);
    }
    [[nodiscard]] bool copies_idle() const { return !copies_ || copies_->idle(); }
    /// True if this memory is still being sent to the next node: it must not be written or unmapped.
    [[nodiscard]] bool is_sent(std::size_t memory) const { return memory == sent_ && !copies_idle(); }
    Result<Go> may_begin(std::int64_t step, const CheckpointState& state, bool busy, Duration patience);
    [[nodiscard]] bool shared_is_due() const;
    void hand_over(Snapshot snapshot, const CheckpointState& state, Instant began);
    Result<bool> try_near(const MemoryTier& tier, Nearness nearness, CheckpointState& state, const PlaceTensors& place,
                          LoadReport& report);
    void take_texts(const Manifest& manifest, CheckpointState& state) const;
    RankFile plan(std::int64_t step, const CheckpointState& state) const;
    Result<void> choose_room(std::uint64_t bytes);
    Result<void> copy(const CheckpointState& state, Snapshot& snapshot);
    static Result<void> place_tensors(const Manifest& manifest, CheckpointState& state, const PlaceTensors& place);
    static Result<Manifest> open_candidate(const std::string& folder, CheckpointState& state,
                                           const PlaceTensors& place);
    Result<bool> try_candidate(const CheckpointName& name, CheckpointState& state, const PlaceTensors& place,
                               LoadReport& report);

    Communicator& world_;
    Checkpointer::Identity identity_;
    CheckpointOptions options_;
    std::shared_ptr<SnapshotLink> snapshots_;
    SnapshotMemories memories_;
    std::size_t turn_ = 0;
    std::size_t sent_ = memories_.size();  // index of the memory last sent to the next node; initially none
    std::string opening_;                  // token of this opening of the directory, the same on all ranks
    std::string word_;                     // directory_word() of the directory (identity.h)
    std::uint64_t saves_ = 0;              // saves and snapshots so far
    int until_shared_ = 0;                 // number of further save() calls that may skip the shared directory
    Instant last_snapshot_{};
    std::unique_ptr<NeighbourCopies> copies_;  // null if no copies go to another node
    std::unique_ptr<SaveWorker> worker_;
    std::atomic<bool> abandoned_ = false;
};

}  // namespace muster::runtime
