// Where a training process learns who it is and gets its communicator.
//
//     auto context = muster::Context::from_environment();
//     if (!context) { std::cerr << context.error().context << '\n'; return 1; }
//     context->world().run(muster::all_reduce(...));
//
// Works under muster, under torchrun, and alone (a world of one). A worker may run several programs one after another;
// those that come first on each rank meet, then those that come second, and so on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muster/communicator.h"
#include "muster/store.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

namespace runtime {
class ContextBody;
class Notices;
class SnapshotLink;
}  // namespace runtime

/// What carries the data.
enum class TransportChoice {
    automatic,      ///< shared memory where ranks can share it, TCP between those that cannot
    shared_memory,  ///< for all ranks, or an error that says why not
    tcp,            ///< for all ranks
    hierarchical,   ///< shared memory inside each launcher's node, TCP between them; or an error
    nccl,           ///< on GPUs, by the NCCL plugin; an error where that, a library or a GPU is missing
};

struct ContextOptions {
    Duration meeting_timeout = std::chrono::seconds(300);    ///< for all ranks to come; torch's default for its store
    Duration operation_timeout = std::chrono::seconds(300);  ///< of a collective that names none
    TransportChoice transport = TransportChoice::automatic;  ///< MUSTER_TRANSPORT wins
};

/// One for a process. Movable; communicators made from it must go first.
class Context {
  public:
    /// Reads the variables, reaches the store, meets the other ranks. invalid_argument: a variable is missing, does not
    /// read, or contradicts another, or that of another rank; the text names it.
    static Result<Context> from_environment(const ContextOptions& options = {});

    ~Context();
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int world_size() const;
    [[nodiscard]] int local_rank() const;
    [[nodiscard]] int local_world_size() const;
    [[nodiscard]] int group_rank() const;
    /// The number of the sealed membership that this process belongs to; under torchrun the restart count.
    [[nodiscard]] std::int64_t round() const;
    [[nodiscard]] std::int64_t restart_count() const;
    /// The job's name: muster's --rdzv-id; empty where no launcher gave one.
    [[nodiscard]] const std::string& job() const;
    /// The CUDA device of this rank, among the visible ones: its local rank.
    [[nodiscard]] int device() const { return local_rank(); }

    /// All ranks.
    [[nodiscard]] Communicator& world() const;
    /// Never null. In a world of one, its keys are in this process.
    [[nodiscard]] Store* store() const;
    /// The same keys over a connection of its own, for a thread whose waits must not hold up others.
    [[nodiscard]] Result<std::unique_ptr<Store>> connect_store() const;

    /// A collective of `members` (ranks of the world, this one among them): a communicator of these, in their order,
    /// for host memory and for a thread that works beside training. It is not in the flight record: what it waits for
    /// explains no hang. All ranks make as many of these.
    [[nodiscard]] Result<std::unique_ptr<Communicator>> host_group(const std::vector<int>& members) const;

    /// For Checkpointer; null where there is no agent to keep anything.
    [[nodiscard]] std::shared_ptr<runtime::SnapshotLink> snapshots() const;
    /// For PreemptionNotice.
    [[nodiscard]] std::shared_ptr<runtime::Notices> notices() const;
    /// The signal by which the launcher or its scheduler gives notice (muster --preemption-signal); 0: none.
    [[nodiscard]] int preemption_signal() const;

  private:
    explicit Context(std::unique_ptr<runtime::ContextBody> body);
    std::unique_ptr<runtime::ContextBody> body_;
};

}  // namespace muster
