// Checkpoints that survive a kill, a power failure and a change of the world size. They are safetensors files and a
// manifest, readable without this library (checkpoint/CHECKPOINT.md describes layout and protocol).
//
//     auto checkpointer = muster::Checkpointer::open(context, {.directory = "ckpt"});
//     muster::CheckpointState state = ...;           // names, shapes and memory of everything to restore
//     auto loaded = checkpointer->load(state);       // the newest complete one; nothing on the first start
//     for (step = *loaded ? (*loaded)->step : 0; ...; ++step) {
//         ...
//         if (step % 100 == 0) checkpointer->save(step, state);  // waits only for a copy in memory
//     }
//     checkpointer->finish();                        // waits until the last save is on disk
//
// Threads: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muster/clean_step.h"
#include "muster/communicator.h"
#include "muster/context.h"
#include "muster/store.h"
#include "muster/tensor_type.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

namespace runtime {
class CheckpointerBody;
class SnapshotLink;
}  // namespace runtime

enum class Placement {
    replicated,  ///< every rank has the whole tensor; one rank saves it (see Replicas)
    sharded,     ///< every rank has a part; together the parts are the whole tensor (ZeRO-1)
};

/// One rank's view of a tensor: elements in row-major order, contiguous.
struct StateTensor {
    std::string name;  ///< unique in the state
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;  ///< shape of the whole tensor; empty: one element
    void* data = nullptr;             ///< host memory; save() reads it before it returns, load() writes it
    Placement placement = Placement::replicated;
    std::uint64_t begin = 0;  ///< sharded: index of the first element in `data`
    std::uint64_t count = 0;  ///< sharded: number of elements in `data`

    /// A replicated tensor.
    static StateTensor whole(std::string name, TensorType type, std::vector<std::int64_t> shape, void* data);
    /// A sharded tensor: this rank has the elements [begin, begin + count).
    static StateTensor shard(std::string name, TensorType type, std::vector<std::int64_t> shape, void* data,
                             std::uint64_t begin, std::uint64_t count);
};

/// Everything that a checkpoint restores.
struct CheckpointState {
    std::vector<StateTensor> tensors = {};
    /// Short UTF-8 texts, equal on all ranks: the cursor of the data, the epoch, the learning rate. Rank 0's are saved.
    std::map<std::string, std::string> values = {};
    /// A short UTF-8 text of this rank, such as the state of its random generators. Restored if the saved world had
    /// this rank, else empty.
    std::string rank_value = {};
    /// Bytes of this rank, of any size, such as error feedback. Restored if the saved world had as many ranks, else
    /// empty.
    std::vector<std::byte> rank_bytes = {};
};

/// The behaviour of save() while the previous save is still being written. A save to local disks only also needs the
/// previous copies on the next node to be complete, because a lost node loses its disk. A skipped save counts for
/// `shared_every`, so it delays no save to the shared directory. For a short save in progress, such as a snapshot, both
/// values wait. With `wait`, a rank whose previous save is written waits for the other ranks up to persist_timeout, or
/// up to an operation's timeout if that is longer.
enum class WhenBusy {
    skip,  ///< skips this save on all ranks alike, reports it, and training continues
    wait,  ///< waits, so that no save is skipped
};

/// Which rank saves a replicated tensor. One rank always writes it whole; `manifest.json` names that rank's file.
enum class Replicas {
    rank_0,  ///< rank 0 saves all of them, so the restored state is one that rank 0 had
    spread,  ///< tensors of 1 MiB and more are divided among the ranks, which write at once; use it only if the
             ///< replicas are equal to the last bit, else the restored state is a mixture that no rank had
};

/// The minimum rate of a copy. The next node treats a slower one as dead.
inline constexpr std::uint64_t copy_bytes_per_second_min = 64u << 10;

struct CheckpointOptions {
    /// A directory that all hosts of the job share. Empty: MUSTER_CHECKPOINT_DIR, set by `muster --checkpoint-dir`.
    std::string directory = {};
    /// A directory on a disk of this host. Each rank's part is written there first, and a later round on the same hosts
    /// loads from it. Empty: MUSTER_CHECKPOINT_LOCAL_DIR, set by `muster --checkpoint-local-dir`; if that is not set,
    /// there is no local directory.
    std::string local_directory = {};
    /// With a local directory: every n-th save (the first of each n) also goes to `directory`. So does the save after a
    /// failed one.
    int shared_every = 1;
    int keep_last = 2;            ///< number of newest checkpoints to keep, at least 1
    std::int64_t keep_every = 0;  ///< also keep the steps that are a multiple of this; 0: none
    WhenBusy when_busy = WhenBusy::skip;
    /// snapshot() is skipped within this time after the previous one, because short steps lose little and the agent has
    /// other work.
    Duration snapshot_interval = std::chrono::milliseconds(5);
    Duration persist_timeout = std::chrono::minutes(30);  ///< from save() until all ranks' parts are on disk
    /// Also copies snapshots to the next node, so that the loss of a node need not lose the steps since the last
    /// checkpoint. Costs memory of three more shares. No effect on a single node and without agents.
    bool copy_to_next_node = true;
    /// Maximum rate at which a rank sends these copies, at least copy_bytes_per_second_min; 0: unlimited. The next
    /// snapshot() waits until the copy is sent.
    std::uint64_t copy_bytes_per_second = 0;
    /// Must be equal on all ranks.
    Replicas replicas = Replicas::rank_0;
    /// Before each save() and snapshot(), compares checksums of the replicated tensors of all ranks. A difference is
    /// invalid_argument on all ranks; it names the tensor and the ranks, and nothing is saved. It reads the whole state
    /// once, at about 20 GB/s. If it is true on one rank, it applies to all.
    bool verify_replicas = false;
};

/// The result of one save.
struct SaveReport {
    std::int64_t step = 0;
    bool persisted = false;
    std::string path;         ///< if persisted: the checkpoint's folder, shared or local
    std::string trouble;      ///< if not persisted: the rank, the file and the system's error text
    std::uint64_t bytes = 0;  ///< size of this rank's share
    double blocked_ms = 0;    ///< time that save() blocked training on this rank
    double persist_ms = 0;    ///< time from then until all ranks' parts were on disk
};

/// The source of a loaded state.
struct LoadReport {
    std::int64_t step = 0;
    bool from_memory = false;      ///< the agents' memory, which kept the copies of workers that ended
    bool from_local_disk = false;  ///< the hosts' local directories
    bool from_survivor = false;    ///< the memory of a rank that survived a failure
    std::string path;  ///< the checkpoint's folder if it came from the shared directory; else empty, because parts in
                       ///< memory or on local disks have no common path
    std::vector<std::string> skipped;  ///< newer checkpoints that were not used, each with the reason
    double load_ms = 0;
};

/// Sets the memory of the tensors of a checkpoint (name, type and shape; all replicated). It may make them shards.
using PlaceTensors = std::function<Result<void>(std::vector<StateTensor>& tensors)>;

/// Access to other nodes, for callers without a Context.
struct CheckpointNeighbours {
    int node = 0;  ///< the node of this rank
    /// A collective of `members` (ranks of the world): makes a communicator of these ranks in this order for host
    /// memory, for a thread of the checkpointer. Empty: no copies go to other nodes.
    std::function<Result<std::unique_ptr<Communicator>>(const std::vector<int>& members)> make_group = {};
};

class Checkpointer {
  public:
    /// A collective. Rank 0 claims the directory for this job, creates it if it is missing, and completes or removes
    /// what an earlier round left incomplete. already_exists: another running job uses the directory; the text names
    /// it.
    static Result<Checkpointer> open(Context& context, const CheckpointOptions& options);

    /// For callers without a Context. `board`: a store on which the ranks exchange the results of their parts, over a
    /// connection without other users; may be null in a world of one. `world` must outlive the checkpointer.
    struct Identity {
        std::string job;
        std::int64_t round = 0;
    };
    static Result<Checkpointer> open(Communicator& world, std::unique_ptr<Store> board, const Identity& identity,
                                     const CheckpointOptions& options,
                                     std::shared_ptr<runtime::SnapshotLink> snapshots = nullptr,
                                     const CheckpointNeighbours& neighbours = {});

    /// Waits for the save in progress, as finish() does.
    ~Checkpointer();
    Checkpointer(Checkpointer&&) noexcept;
    Checkpointer& operator=(Checkpointer&&) noexcept;

    /// A collective: fills `state` from the newest checkpoint that is complete on all ranks. Returns nothing if there
    /// is none. It loads from the agents' memory if they have copies of an equal or newer step. The world and the
    /// shards may differ from those at the save. invalid_argument: names, types or shapes of the tensors differ from
    /// the checkpoint's; the text names the first one, and memory is unchanged. bad_frame: there are checkpoints, but
    /// none is complete; the text gives the reason.
    Result<std::optional<LoadReport>> load(CheckpointState& state);

    /// A collective: the same for callers without tensors yet, such as an optimizer before its first step. Every rank
    /// calls `place` once for each checkpoint that is tried. An error of `place` on any rank ends the load. Afterwards
    /// state.tensors are those that `place` left.
    Result<std::optional<LoadReport>> load_as_saved(CheckpointState& state, const PlaceTensors& place);

    /// A collective: the same for a state that survives a failure in this process's memory (muster/recoverable.h). If
    /// any rank's state is clean, the highest clean step wins: its ranks keep their memory, and give it to the others.
    /// Then checksums of all tensors are compared. If a rank has shards, a rank_value or rank_bytes, or if the
    /// checksums or the `values` of these ranks differ, it loads as above, and LoadReport::skipped has the reason.
    /// not_found: a rank was clean or torn (clean_step.h), and nothing is there to load. Here `state` is an argument
    /// too: it must be whole, as for save(), with the texts and bytes of the clean step. Afterwards `clean` has the
    /// loaded step.
    Result<std::optional<LoadReport>> load(CheckpointState& state, CleanStep& clean);
    /// `state` has this rank's tensors if it is clean. `clean` is unchanged if these are kept: then `place` was not
    /// called. Else the caller sets it when it has taken the new ones over.
    Result<std::optional<LoadReport>> load_as_saved(CheckpointState& state, const PlaceTensors& place,
                                                    CleanStep& clean);

    /// Copies this rank's share and returns; a thread writes it. All ranks call it with the same step and the same
    /// tensors. It returns errors of the arguments and of the communicator. The result of writing is in reports() and
    /// in the log.
    Result<void> save(std::int64_t step, const CheckpointState& state);
    Result<void> save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy);

    /// The same without a disk. The agent keeps the copy and gives it to the worker of the next round if this worker
    /// dies; the next node keeps another copy. It is cheap enough for every step, so that a failure loses at most one
    /// step. Skipped on all ranks alike: while another save is in progress or being copied to the next node, within
    /// snapshot_interval, and without an agent. Costs memory of three shares.
    Result<void> snapshot(std::int64_t step, const CheckpointState& state);

    /// Allocates the memory for a copy of this rank's share before the first save(). limit_exceeded: too little memory.
    Result<void> reserve(const CheckpointState& state);

    /// Waits until the save in progress is on disk or has failed. An error means that the newest save is not on disk.
    Result<void> finish();

    /// The newest step for which the next node has a copy of this rank's share, by save() or snapshot(). -1: none, or
    /// copies are off.
    [[nodiscard]] std::int64_t copied_step() const;

    /// The saves that have ended since the last call, at most the newest 1,024.
    std::vector<SaveReport> reports();

  private:
    explicit Checkpointer(std::unique_ptr<runtime::CheckpointerBody> body);
    std::unique_ptr<runtime::CheckpointerBody> body_;
};

}  // namespace muster
