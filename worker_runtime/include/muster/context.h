// The identity of a training process (rank, world, round) and its communicator of all ranks.
//
//     auto context = muster::Context::from_environment();
//     if (!context) { std::cerr << context.error().context << '\n'; return 1; }
//     context->world().run(muster::all_reduce(...));
//
// It works under muster, under torchrun, and without a launcher (a world of one). A worker process may run several
// programs one after another: the first programs of all ranks form one world, then the second ones, and so on.
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

/// The transport of a communicator.
enum class TransportChoice {
    automatic,      ///< shared memory between ranks that can share it, TCP between all others
    shared_memory,  ///< shared memory for all ranks, or an error that gives the reason
    tcp,            ///< TCP for all ranks
    hierarchical,   ///< shared memory inside each node of the launcher, TCP between nodes; or an error
    nccl,           ///< the NCCL plugin on GPUs; an error if the plugin, a library or a GPU is missing
};

struct ContextOptions {
    Duration meeting_timeout = std::chrono::seconds(300);    ///< until all ranks have joined; torch's store default
    Duration operation_timeout = std::chrono::seconds(300);  ///< default deadline of a collective
    TransportChoice transport = TransportChoice::automatic;  ///< the variable MUSTER_TRANSPORT overrides it
};

/// Make one per process. Movable. Destroy the communicators made from it first.
class Context {
  public:
    /// Reads the environment variables, connects to the store and waits for the other ranks. invalid_argument: a
    /// variable is missing, malformed, or contradicts another variable or another rank; the text names it.
    static Result<Context> from_environment(const ContextOptions& options = {});

    ~Context();
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int world_size() const;
    [[nodiscard]] int local_rank() const;
    [[nodiscard]] int local_world_size() const;
    [[nodiscard]] int group_rank() const;
    /// The number of the sealed membership of this process. Under torchrun: the restart count.
    [[nodiscard]] std::int64_t round() const;
    [[nodiscard]] std::int64_t restart_count() const;
    /// The job's name (muster's --rdzv-id). Empty if no launcher set one.
    [[nodiscard]] const std::string& job() const;
    /// The index of this rank's CUDA device among the visible ones: the local rank.
    [[nodiscard]] int device() const { return local_rank(); }

    /// The communicator of all ranks.
    [[nodiscard]] Communicator& world() const;
    /// Never null. In a world of one, the keys are kept in this process.
    [[nodiscard]] Store* store() const;
    /// The same keys over a separate connection, for a thread whose waits must not block others.
    [[nodiscard]] Result<std::unique_ptr<Store>> connect_store() const;

    /// A collective of `members` (ranks of the world, this rank included): returns a communicator of these ranks, in
    /// this order, for host memory. It is meant for a thread that works beside training. Its operations are not in the
    /// flight record, so a wait there never explains a hang. All ranks must make the same number of host groups.
    /// Where the job has a key, its connections are encrypted.
    [[nodiscard]] Result<std::unique_ptr<Communicator>> host_group(const std::vector<int>& members) const;
    /// unsupported: this rank can make none, because there is no libcrypto to encrypt them. Then no rank may call
    /// host_group().
    [[nodiscard]] Result<void> can_make_host_groups() const;

    /// What run_recoverable() (muster/recoverable.h) is made of. can_rejoin(true) tells the agent that this process
    /// need not end with its round: after a failed call, the program destroys what it has made from this context and
    /// calls rejoin().
    void can_rejoin(bool can);
    /// Waits until the next round begins, and renews this context in place. Errors: invalid_argument: the round has not
    /// ended; unsupported, cancelled: no round follows for this process, or the agent has not ended the round within
    /// 15 s. After another error than invalid_argument, the context can only be destroyed.
    Result<void> rejoin();

    /// Used by Checkpointer. Null if there is no agent to keep snapshots.
    [[nodiscard]] std::shared_ptr<runtime::SnapshotLink> snapshots() const;
    /// Used by PreemptionNotice.
    [[nodiscard]] std::shared_ptr<runtime::Notices> notices() const;
    /// The preemption signal of the launcher or scheduler (muster --preemption-signal); 0: none.
    [[nodiscard]] int preemption_signal() const;

  private:
    explicit Context(std::unique_ptr<runtime::ContextBody> body);
    std::unique_ptr<runtime::ContextBody> body_;
};

}  // namespace muster
