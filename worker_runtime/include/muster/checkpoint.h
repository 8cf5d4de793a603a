// Checkpoints that survive a kill, a power cut and a change of the world's size, and can be read without this library:
// safetensors files, and a manifest (checkpoint/CHECKPOINT.md has the layout and the protocol).
//
//     auto checkpointer = muster::Checkpointer::open(context, {.directory = "ckpt"});
//     muster::CheckpointState state = ...;           // names, shapes and memory of all that must come back
//     auto loaded = checkpointer->load(state);       // the newest one that is whole; nothing on a first start
//     for (step = *loaded ? (*loaded)->step : 0; ...; ++step) {
//         ...
//         if (step % 100 == 0) checkpointer->save(step, state);  // waits for a copy in memory alone
//     }
//     checkpointer->finish();                        // the last one is on the disk
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
    replicated,  ///< every rank has all of it; one rank's is saved, whole (Replicas)
    sharded,     ///< every rank has a part, and the parts make up the whole (ZeRO-1)
};

/// A tensor as one rank has it: elements in row-major order, contiguous.
struct StateTensor {
    std::string name;  ///< unique in the state
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape;  ///< of the whole tensor; empty: one element
    void* data = nullptr;             ///< host memory; read by save() before it returns, written by load()
    Placement placement = Placement::replicated;
    std::uint64_t begin = 0;  ///< sharded: the first element that `data` has
    std::uint64_t count = 0;  ///< sharded: how many

    /// All of it, on every rank.
    static StateTensor whole(std::string name, TensorType type, std::vector<std::int64_t> shape, void* data);
    /// Elements [begin, begin + count) of it.
    static StateTensor shard(std::string name, TensorType type, std::vector<std::int64_t> shape, void* data,
                             std::uint64_t begin, std::uint64_t count);
};

/// All that must come back.
struct CheckpointState {
    std::vector<StateTensor> tensors = {};
    /// Small texts, equal on all ranks: the cursor of the data, the epoch, the learning rate. Rank 0's are kept. UTF-8.
    std::map<std::string, std::string> values = {};
    /// A small text of this rank's own: its random generators. Comes back where the saved world had this rank, else it
    /// is empty. UTF-8.
    std::string rank_value = {};
    /// Memory of this rank's own, of any size: what error feedback holds back. Comes back where the saved world has as
    /// many ranks, else it is empty.
    std::vector<std::byte> rank_bytes = {};
};

/// What save() does while the one before is still being written. One that goes no further than the local disks also
/// needs the copies on the next node to have come, and is left out, or waits, for these too: a node that is lost takes
/// its disk along. What was left out counts as one of `shared_every`, so that it delays no save to the shared
/// directory. For a snapshot, which is over in a moment, both wait.
enum class WhenBusy {
    skip,  ///< says so in its report, and training goes on; all ranks skip the same ones
    wait,  ///< so that none is left out
};

/// Whose elements are saved of a replicated tensor. It is always written by one rank, whole; `manifest.json` names the
/// rank's file.
enum class Replicas {
    rank_0,  ///< rank 0's, whatever the other ranks have: the state that comes back is one that rank 0 had
    spread,  ///< those of 1 MiB and more are divided among the ranks, so that all write at once: only for replicas that
             ///< are equal to the last bit, or the state that comes back is a mixture that no rank had
};

/// Slower than this the next node would have to take a copy for dead.
inline constexpr std::uint64_t copy_bytes_per_second_min = 64u << 10;

struct CheckpointOptions {
    /// One that all hosts of the job share. Empty: MUSTER_CHECKPOINT_DIR, which `muster --checkpoint-dir` sets.
    std::string directory = {};
    /// On a disk of this host: each rank's part goes there first, and a round on these hosts goes on from it. Empty:
    /// MUSTER_CHECKPOINT_LOCAL_DIR, which `muster --checkpoint-local-dir` sets; else there is none.
    std::string local_directory = {};
    /// With a local directory: of that many saves the first goes to `directory` too. So does the one after a save that
    /// failed, there or on a local disk.
    int shared_every = 1;
    int keep_last = 2;            ///< at least 1
    std::int64_t keep_every = 0;  ///< also keep those whose step is a multiple; 0: none
    WhenBusy when_busy = WhenBusy::skip;
    /// snapshot() is left out within this time of the last one: shorter steps lose little, and the agent has other
    /// work.
    Duration snapshot_interval = std::chrono::milliseconds(5);
    Duration persist_timeout = std::chrono::minutes(30);  ///< from save() to all ranks' parts being on the disk
    /// Copies in memory also go to the next node, so that the loss of a whole one need not cost the steps since the
    /// last checkpoint. Takes memory of three more shares. Nothing on one node, and without agents.
    bool copy_to_next_node = true;
    /// What a rank sends of them at most; 0: as fast as the network takes them, else copy_bytes_per_second_min at
    /// least. The next snapshot() waits for its turn.
    std::uint64_t copy_bytes_per_second = 0;
    /// The same on all ranks.
    Replicas replicas = Replicas::rank_0;
    /// Each save() and snapshot() compares checksums of the replicated tensors of all ranks first. A difference is an
    /// error (invalid_argument) on all ranks that names the tensor and the ranks, and nothing is saved. It reads all of
    /// the state once, about 20 GB/s. True on one rank is true on all.
    bool verify_replicas = false;
};

/// How a save ended.
struct SaveReport {
    std::int64_t step = 0;
    bool persisted = false;
    std::string path;         ///< of the checkpoint's folder, or the local one, where it was persisted
    std::string trouble;      ///< else why not: the rank, the file and the system's words
    std::uint64_t bytes = 0;  ///< of this rank's share
    double blocked_ms = 0;    ///< how long save() kept this rank from training
    double persist_ms = 0;    ///< from then until all ranks' parts were on the disk
};

/// Where a state came from.
struct LoadReport {
    std::int64_t step = 0;
    bool from_memory = false;          ///< of the agents, which had kept the copies of workers that ended
    bool from_local_disk = false;      ///< of the hosts' local directories
    std::string path;                  ///< of the checkpoint's folder in the shared directory; else empty: parts that
                                       ///< were in memory or on several local disks have no one place
    std::vector<std::string> skipped;  ///< newer ones that were not taken, each with the reason
    double load_ms = 0;
};

/// Gives tensors as a checkpoint has them (name, type and shape; all replicated) their memory. It may make them shards.
using PlaceTensors = std::function<Result<void>(std::vector<StateTensor>& tensors)>;

/// The way to other nodes, for those who have no Context.
struct CheckpointNeighbours {
    int node = 0;  ///< this rank's
    /// A collective of `members` (ranks of the world): a communicator of these for host memory, in their order; a
    /// thread of the checkpointer uses it. Empty: no copies go to other nodes.
    std::function<Result<std::unique_ptr<Communicator>>(const std::vector<int>& members)> make_group = {};
};

class Checkpointer {
  public:
    /// A collective. Rank 0 takes the directory for this job (already_exists: another job that still runs has it; the
    /// text names it), finishes or removes what an earlier round left half done, and makes it where it is missing.
    static Result<Checkpointer> open(Context& context, const CheckpointOptions& options);

    /// For those who have no Context. `board`: where ranks tell each other how their parts went, on a connection that
    /// nobody else uses; may be null in a world of one. `world` must outlive the checkpointer.
    struct Identity {
        std::string job;
        std::int64_t round = 0;
    };
    static Result<Checkpointer> open(Communicator& world, std::unique_ptr<Store> board, const Identity& identity,
                                     const CheckpointOptions& options,
                                     std::shared_ptr<runtime::SnapshotLink> snapshots = nullptr,
                                     const CheckpointNeighbours& neighbours = {});

    /// Waits for the save under way, as finish() does.
    ~Checkpointer();
    Checkpointer(Checkpointer&&) noexcept;
    Checkpointer& operator=(Checkpointer&&) noexcept;

    /// A collective: fills `state` from the newest checkpoint that is whole on all ranks. Nothing where there is none.
    /// Where the agents still have copies of a step as new, it comes from their memory. The tensors' names, types and
    /// shapes must be the checkpoint's: invalid_argument names the first that differs, and nothing has been written to
    /// memory then. bad_frame: there are some, but none is whole; the text says why. World and shards may be others
    /// than when it was saved.
    Result<std::optional<LoadReport>> load(CheckpointState& state);

    /// A collective: the same for those who have no tensors yet, such as an optimizer before its first step. `place` is
    /// called on every rank once for each checkpoint that is tried; an error of it, on any rank, ends the load. Then
    /// state.tensors are those that it left.
    Result<std::optional<LoadReport>> load_as_saved(CheckpointState& state, const PlaceTensors& place);

    /// Copies this rank's share and returns; a thread writes it. All ranks call it with the same step and the same
    /// tensors. An error is one of the arguments, or the communicator's; what happens to the files comes with
    /// reports(), and is logged.
    Result<void> save(std::int64_t step, const CheckpointState& state);
    Result<void> save(std::int64_t step, const CheckpointState& state, WhenBusy when_busy);

    /// The same without a disk: the copy is for the agent, which gives it to the worker of the next round when this one
    /// dies, and for that of the next node. Cheap enough for every step: after a failure at most one is lost. Left out,
    /// on all ranks alike, while another save is under way or on its way to the next node, soon after the last one, and
    /// where no agent would keep it. Takes memory of three shares.
    Result<void> snapshot(std::int64_t step, const CheckpointState& state);

    /// Takes the memory for a copy of this rank's share, so that the first save() need not: limit_exceeded where there
    /// is too little.
    Result<void> reserve(const CheckpointState& state);

    /// Waits until the save under way is on the disk or has failed. An error: the newest save is not on the disk.
    Result<void> finish();

    /// The newest step of which the next node has a copy of this rank's share, by save() or snapshot(); -1: none, or
    /// none go there.
    [[nodiscard]] std::int64_t copied_step() const;

    /// Of all saves that have ended since the last call, at most the newest 1,024.
    std::vector<SaveReport> reports();

  private:
    explicit Checkpointer(std::unique_ptr<runtime::CheckpointerBody> body);
    std::unique_ptr<runtime::CheckpointerBody> body_;
};

}  // namespace muster
