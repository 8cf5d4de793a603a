// The thread that writes snapshots to disk, one at a time, in step with the threads of the other ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "muster/checkpoint.h"
#include "rendezvous/base/error.h"
#include "worker_runtime/checkpoint/files/directory_claim.h"
#include "worker_runtime/checkpoint/format/names.h"
#include "worker_runtime/checkpoint/format/rank_file.h"
#include "worker_runtime/checkpoint/local_directory.h"
#include "worker_runtime/checkpoint/neighbour_copies.h"
#include "worker_runtime/checkpoint/save_board.h"
#include "worker_runtime/checkpoint/snapshot_link.h"

namespace muster::runtime {

/// A copy of one rank's share, in the layout of its file.
struct Snapshot {
    RankFile file;  ///< its checksums are still 0
    /// file.size_bytes, rounded up to a multiple of file_alignment; the head is still missing.
    std::span<std::byte> memory;
    const FileDescriptor* descriptor = nullptr;  ///< descriptor of `memory`
    bool to_disk = true;                         ///< false: given to agents only
    bool to_shared = true;                       ///< false: written to the local directory only
    bool to_next_node = false;                   ///< sent to the next node too; the same on all ranks
    SaveReport report;
    Instant taken;
    std::optional<Error> failure{};  ///< set if there is no copy; the other ranks must learn this
};

class SaveWorker {
  public:
    struct Terms {
        std::string directory;
        std::string nonce;  ///< token of this opening of the directory, the same on all ranks
        Duration timeout{};
        Retention retention;
        int rank = 0;
        std::optional<DirectoryClaim> claim;      ///< rank 0 only, if the directory is writable
        std::string refusal;                      ///< why the directory is not writable, on all ranks; else empty
        std::shared_ptr<SnapshotLink> snapshots;  ///< null: there is no agent to give snapshots to
        NeighbourCopies* copies = nullptr;        ///< outlives the worker; null: no copies go to another node
        std::optional<LocalDirectory> local;      ///< empty: no local directory
        std::vector<KeptCheckpoint> known;        ///< rank 0 only: the state of the checkpoints on disk
    };

    /// Returns an error if the system cannot start a thread.
    static Result<std::unique_ptr<SaveWorker>> start(Terms terms, std::unique_ptr<SaveBoard> board);
    /// Finishes the save in progress, however long that takes.
    ~SaveWorker();

    /// `snapshot.memory` must stay untouched until idle(). Call it only while idle.
    void begin(Snapshot snapshot);
    [[nodiscard]] bool idle() const;
    /// True if the snapshot in progress is for agents alone, so it ends soon.
    [[nodiscard]] bool in_memory_only() const;
    /// True if the agent has taken the last copy, so its memory must not be written. Call it only while idle.
    [[nodiscard]] bool gave_last() const { return gave_last_; }
    /// True if, as far as this rank knows, a write of the last save to a disk failed. Call it only while idle.
    [[nodiscard]] bool last_failed() const;
    /// Waits until it is idle. timed_out: the save in progress has exceeded even its own deadlines, so the disk hangs;
    /// then this object must live until the process ends.
    Result<void> finish();
    /// The reports since the last call.
    std::vector<SaveReport> take_reports();
    /// Adds the report of a save that was skipped.
    void leave_out(SaveReport report);
    /// The reason why the newest save with a report, begun or skipped, is not on disk; empty if it is.
    [[nodiscard]] std::string newest_trouble() const;
    /// Rank 0, while idle: records what reading a checkpoint has shown.
    void note(const KeptCheckpoint& checkpoint);
    /// While idle: the newest step with a file on this host's disk, by file name; -1 if there is none.
    [[nodiscard]] std::int64_t newest_local() const;
    /// While idle: takes at most `most` files from this host's disk; release_local() gives them back.
    std::vector<OfferedSnapshot> take_local(std::size_t most);
    void release_local();

  private:
    SaveWorker(Terms terms, std::unique_ptr<SaveBoard> board) : terms_(std::move(terms)), board_(std::move(board)) {}
    void run();
    Result<std::uint32_t> seal_and_give(Snapshot& snapshot);
    void add_report(SaveReport report);
    Result<std::string> persist(Snapshot& snapshot);
    Result<std::string> finish_together(const Snapshot& snapshot, const DraftName& draft,
                                        const Result<std::uint32_t>& own, Instant deadline);
    Result<void> write_local(const Snapshot& snapshot, const Interruption& in_time);
    Result<std::uint32_t> write_own_file(Snapshot& snapshot, const std::string& folder, Instant deadline);
    Result<CheckpointName> commit(const DraftName& draft, const Result<std::uint32_t>& own, Instant deadline);
    void remove_old();
    /// The time allowed for a commit, in addition to the time of the save itself.
    [[nodiscard]] Duration commit_time() const;

    Terms terms_;
    std::unique_ptr<SaveBoard> board_;
    bool gave_last_ = false;
    std::uint64_t saves_ = 0;  // saves begun so far
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Snapshot> snapshot_;  // the one in progress
    std::vector<SaveReport> reports_;
    std::string newest_trouble_;  // reason of the newest begun save; empty if it succeeded
    bool last_failed_ = false;
    bool local_failed_ = false;  // of the save in progress; used by the thread only
    std::string left_out_;       // why the newest save was skipped; cleared when one begins; the same on all ranks
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace muster::runtime
