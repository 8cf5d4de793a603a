// What one worker is started with: its argv and its complete environment, made from the launcher's choices and the
// round's assignment. Pure; the table is torchrun's, so that an unmodified script cannot tell the difference.
//
// On top of it each worker gets these of our own:
//   MUSTER_ROUND          the round's number, equal on all nodes, never reused (TORCHELASTIC_RESTART_COUNT counts only
//                         the restarts that were charged to the budget)
//   MUSTER_CHECKPOINT_DIR, MUSTER_CHECKPOINT_LOCAL_DIR
//                         --checkpoint-dir and --checkpoint-local-dir, where they were given; else what the launcher
//                         has, unless an outer muster set it
//   MUSTER_SNAPSHOTS      how many snapshots the channel will offer, which a worker in this place has given; else not
//                         set
//   MUSTER_AGENT_SOCKET   the agent-worker channel (rendezvous/wire/local), where there is one
//   MUSTER_AGENT_TOKEN    what a worker shows on the channel before it is heard, where there is one. A worker's
//                         children get it too: one of them may be the program that uses the channel
//   MUSTER_STORE_ADDR     the address of the round's store, where MASTER_ADDR is this node's relay; else not set
//   MUSTER_STARTED_AGAIN  how often this worker was started again in this round (--on-worker-failure=keep); else not
//                         set
//   MUSTER_COLLECTIVE_THREADS
//                         threads of a rank for large collectives, unless set, where cores are to spare; else not set
//   MUSTER_RANKS_SECURITY "auth" or "encrypt" (--wire-security), where the job has a key: the channel gives the
//                         workers theirs, and they meet nobody without it; else not set
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/supervision/placement.h"
#include "rendezvous/base/error.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

/// Variables that only the agent may have: workers and a site's check run code of many authors under the same user, who
/// may read the environment of the agent's other programs, too.
inline constexpr std::array<const char*, 5> agents_own_variables{"MUSTER_SECRET_FILE", "MUSTER_KEY", "MUSTER_KEY_OLD",
                                                                 "MUSTER_ETCD_LOGIN_FILE", "CREDENTIALS_DIRECTORY"};

/// The same for all workers of this node and for all rounds.
struct WorkerSpec {
    /// argv[0] is taken as it is; in the others ${local_rank} and $local_rank are replaced (macros.h).
    std::vector<std::string> argv;
    /// The agent's own environment, copied to every worker under the table below.
    std::map<std::string, std::string> environment;
    std::uint32_t worker_count = 1;  ///< Workers on this node.
    std::string role = "default";
    std::string job = "none";  ///< Value of TORCHELASTIC_RUN_ID.
    std::uint32_t restarts_max = 0;
    std::string checkpoint_dir;  ///< Empty: none.
    std::string checkpoint_local_dir;
    bool virtual_local_rank = false;
    /// False: worker rank 0 serves the store itself (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1).
    bool agent_store = true;
    /// The static back end's MASTER_ADDR and MASTER_PORT; empty: those of the assignment.
    std::string master_address;
    std::uint16_t master_port = 0;
    std::vector<Placement> placements;     ///< Indexed by local rank. Empty: workers may use all CPUs of the agent.
    std::vector<std::uint32_t> threads;    ///< OMP_NUM_THREADS of each local rank unless set. Empty: torchrun's 1.
    std::uint32_t collective_threads = 1;  ///< MUSTER_COLLECTIVE_THREADS unless set. 1: not set.
    /// GLOO_SOCKET_IFNAME where the user has set none: the interface that leads to the other nodes, in this round. Gloo
    /// would take the address of the host's name, which may be 127.0.1.1, or none, or a slow name service's. Empty: not
    /// known.
    std::string interface;
    /// MUSTER_STORE_ADDR: the numeric address of the round's store, where MASTER_ADDR is that of this node's relay
    /// (--store-relay). Empty: there is none.
    std::string relayed_store;
    std::string wire_security = "auth";  ///< MUSTER_RANKS_SECURITY where workers have a key.
    int preemption_signal = 0;           ///< MUSTER_PREEMPTION_SIGNAL: the runtime handles it. 0: none.
    std::string handled_signal_names = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
};

/// What the agent made for one worker of one round.
struct WorkerFiles {
    std::string error_file;          ///< Empty: none, and TORCHELASTIC_ERROR_FILE is "".
    std::string agent_socket;        ///< Empty: no channel.
    bool has_ranks_key = false;      ///< True if the workers of the round share a key.
    std::string agent_token;         ///< What the channel asks its worker for.
    std::size_t snapshot_count = 0;  ///< Number of snapshots that the channel offers first.
    std::string torch_hook;          ///< Appended to PYTHONPATH. Empty: no hook.
    std::string torch_socket;        ///< Socket on which the hook serves torch's debugging handlers. Empty: none.
    std::uint32_t again_count = 0;   ///< How often this worker was started again in this round.
};

/// "NAME=value" for each variable, sorted by name. `local_rank` < `spec.worker_count`. Fails (invalid_argument) when
/// virtual_local_rank is asked for and CUDA_VISIBLE_DEVICES names too few devices, or
/// when nobody said where the store is.
Result<std::vector<std::string>> worker_environment(const WorkerSpec& spec, const native::Assigned& assignment,
                                                    std::uint32_t local_rank, const WorkerFiles& files);

/// The names of those that differ between two rounds although nothing in the launcher's environment or options does.
/// Programs read them when they run, and no import does (standby processes rely on it).
std::vector<std::string_view> variables_of_a_round();

/// argv of one worker: macros are replaced in everything but argv[0].
std::vector<std::string> worker_argv(const WorkerSpec& spec, std::uint32_t local_rank);

}  // namespace muster::agent
