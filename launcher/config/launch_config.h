// The one configuration struct. options.cpp fills it from the command line, PET_* and MUSTER_*; environment_probe
// supplies what neither said; wiring hands parts of it down. Every field has its unit, its default and its reason.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/supervision/placement.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/time.h"
#include "rendezvous/state/etcd/etcd_place.h"

namespace muster::launcher {

enum class Backend {
    c10d,   ///< elastic, MIN:MAX nodes
    fixed,  ///< torchrun's "static": exactly MAX nodes, ranks from --node-rank
};

/// Bit mask of one worker's streams, as torchrun writes it.
enum class StreamMask : std::uint8_t { none = 0, out = 1, err = 2, both = 3 };

/// "-r 3" for all, or "-r 0:1,12:3" for some local ranks; those not named have `none`.
struct StreamChoice {
    StreamMask all = StreamMask::none;
    std::map<std::uint32_t, StreamMask> by_local_rank;
};

/// Where the number of workers on this node comes from.
enum class WorkerCount {
    given,      ///< workers_per_node holds it
    automatic,  ///< the GPUs that CUDA would see, else the CPUs
    gpu,        ///< the GPUs; none is an error
    cpu,        ///< the CPUs of the affinity mask, no more than the cgroup's quota
};

/// How the worker's program is started; entry.cpp turns it into a command.
enum class EntryKind {
    by_content,  ///< a script runs as PYTHON -u script args; an ELF file or another shebang runs as it is
    module,      ///< -m: PYTHON -u -m module args
    run_path,    ///< --run-path: PYTHON -u, then runpy.run_path(script)
    program,     ///< --no-python: exec script args, looked up in PATH
};

enum class ExitCodeStyle { muster, torchrun };

struct LaunchConfig {
    // -- who takes part --
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    bool nodes_given = false;  ///< --nnodes was written; else one node may be an oversight
    WorkerCount worker_count = WorkerCount::given;
    std::uint32_t workers_per_node = 1;
    std::uint32_t spares = 0;
    std::string role = "default";
    std::int32_t node_rank = -1;  ///< -1: not given

    // -- rendezvous --
    Backend backend = Backend::fixed;
    std::string endpoint_option;  ///< which option named the endpoint's host: --rdzv-endpoint or --master-addr; or none
    Endpoint endpoint;  ///< of the daemon; for `fixed` also MASTER_ADDR:MASTER_PORT. Port 0: this node alone, any port
    std::vector<Endpoint> more_endpoints;  ///< further daemons that share their state with the first one (etcd)
    /// --rdzv-backend etcd: `endpoint` is one of its members, and the nodes' own daemons share their state there.
    std::optional<rendezvous::EtcdPlace> etcd;
    std::string etcd_login_file;  ///< MUSTER_ETCD_LOGIN_FILE; empty: etcd has no users
    PortRange daemon_ports;       ///< --rdzv-conf daemon_port, of this node's daemon beside etcd; {0, 0}: any free one
    std::string job = "none";
    std::string named_job = "none";  ///< as --rdzv-id has it, also where a node alone runs under a random id
    bool standalone = false;         ///< asked for or implied: one node, its own daemon, a random job id
    std::optional<bool> is_host;     ///< --rdzv-conf is_host; empty: found out from the endpoint
    std::string local_address;       ///< --local-addr; empty: found out
    Duration join_timeout = 600s;    ///< also waits for a host that starts later
    Duration last_call = 30s;
    Duration lease = 5s;  ///< silence after which a node counts as lost
    Duration lost_timeout = 60s;
    PortRange store_ports;    ///< --store-port; {0, 0}: any free one
    bool share_store = true;  ///< false: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, worker rank 0 binds a probed port

    LocalUsers local_users = LocalUsers::own;  ///< --local-users, of each port of this node
    /// The hash that is keyed with the job's secret; empty: everybody who reaches the rendezvous may join.
    std::function<std::string(std::string_view)> secret;

    // -- what runs --
    EntryKind entry = EntryKind::by_content;
    std::string script;
    std::vector<std::string> arguments;
    bool virtual_local_rank = false;
    bool local_rank_argument = false;  ///< --local-rank=N stands before `arguments`, as torch.distributed.launch does
    std::optional<agent::NumaBinding> numa_binding;  ///< nothing: workers run wherever muster may
    bool threads_from_cores = false;                 ///< --omp auto; else OMP_NUM_THREADS is torchrun's
    std::vector<agent::Placement> placements;        ///< of each local rank, by resolve_placement; empty: unbound
    std::vector<std::uint32_t> threads;              ///< of each local rank, likewise; empty: torchrun's

    // -- restarts and ends --
    std::uint32_t restarts_max = 0;
    Duration restarts_window{};  ///< restarts_max counts within any stretch of this length; 0: for the whole job
    std::uint32_t node_failures_max = 0;     ///< a node that is the first cause of so many of the last node_failures_of
    std::uint32_t node_failures_of = 0;      ///< rounds is left out of the next ones; 0: none is. Default: 2 of 5 with
                                             ///< spares, where a wrong judgement costs nothing, and off without, where
                                             ///< it would cost the job a node
    bool restart_early_failures = false;     ///< also where a worker failed as it will again: a missing module, a bad
                                             ///< option. Off, because such a restart heals nothing
    std::string checkpoint_dir;              ///< absolute; empty: none, and nobody looks for checkpoints
    std::string checkpoint_local_dir;        ///< absolute; empty: none
    std::uint32_t stalled_restarts_max = 3;  ///< in a row, without a newer checkpoint in checkpoint_dir; 0: no limit.
                                             ///< Most failures that a restart heals are healed by the first
    Duration persist_limit = 60s;            ///< --persist-timeout: agents' copies to the disk, at the job's end
    Duration grace = 30s;                    ///< --shutdown-timeout
    Duration hang_timeout = 10s;  ///< --hang-timeout: a worker that others wait for and that does nothing for so long
                                  ///< is ended; 0: never. Above the pauses of a sound step, below a person's patience
    std::vector<int> handled_signals;                                    ///< default SIGTERM, SIGINT, SIGHUP, SIGQUIT
    std::string handled_signal_names = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  ///< as exported to the workers
    int preemption_signal = 0;  ///< to any agent: a notice to all workers of the job. 0: none
    bool allow_faults = false;  ///< --allow-faults: muster fault may lose this node's workers, its agent and its daemon
    ExitCodeStyle exit_codes = ExitCodeStyle::muster;

    // -- output --
    std::string log_dir;        ///< base; empty: no files unless -r or -t ask for them, then under $TMPDIR
    bool log_dir_null = false;  ///< --log-dir /dev/null: no directory at all
    StreamChoice redirects;
    StreamChoice tee;
    std::vector<std::uint32_t> local_ranks_filter;
    std::vector<std::string> stdout_filters;
    std::vector<std::string> stderr_filters;
    std::string prefix_template;  ///< TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE; empty: "[${role_name}${local_rank}]:"
    bool host_prefix = false;     ///< [host:rank] before every line
    LogLevel log_level = LogLevel::warning;
    std::string report;  ///< --report as given (report_writer.h); empty: no file
};

/// The job as people know it: the name that they gave, also of a node alone.
inline const std::string& shown_job(const LaunchConfig& config) {
    return config.named_job == "none" ? config.job : config.named_job;
}

/// The option that names the endpoint's host, or would.
inline const char* endpoint_option(const LaunchConfig& config) {
    return config.backend == Backend::fixed && config.endpoint_option != "--rdzv-endpoint" ? "--master-addr"
                                                                                           : "--rdzv-endpoint";
}

}  // namespace muster::launcher
