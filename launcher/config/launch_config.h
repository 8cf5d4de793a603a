// The one configuration struct. options.cpp fills it from the command line, PET_* and MUSTER_*; environment_probe
// supplies what neither said; wiring hands parts of it down. Every field has its unit, its default and its reason.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/supervision/placement.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/address_set.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/base/time.h"
#include "rendezvous/state/etcd/etcd_place.h"

namespace muster::launcher {

enum class Backend {
    c10d,   ///< Elastic: MIN:MAX nodes.
    fixed,  ///< torchrun's "static": exactly MAX nodes, ranks from --node-rank.
};

/// Bit mask of one worker's streams, as torchrun writes it.
enum class StreamMask : std::uint8_t { none = 0, out = 1, err = 2, both = 3 };

struct ListenPlace {
    std::string address;
    PortRange ports;
};

/// "-r 3" for all, or "-r 0:1,12:3" for some local ranks; those not named have `none`.
struct StreamChoice {
    StreamMask all = StreamMask::none;
    std::map<std::uint32_t, StreamMask> by_local_rank;
};

/// Where the number of workers on this node comes from.
enum class WorkerCount {
    given,      ///< workers_per_node has the number.
    automatic,  ///< The GPUs that CUDA shows, else the CPUs.
    gpu,        ///< The GPUs. None is an error.
    cpu,        ///< The CPUs of the affinity mask, at most the cgroup's quota.
};

/// How the worker's program is started; entry.cpp turns it into a command.
enum class EntryKind {
    by_content,  ///< A script runs as PYTHON -u script args. An ELF file or another shebang is executed directly.
    module,      ///< -m: PYTHON -u -m module args
    run_path,    ///< --run-path: PYTHON -u, then runpy.run_path(script)
    program,     ///< --no-python: exec script args, looked up in PATH
};

enum class ConsoleLines { automatic, fold, all };
enum class ExitCodeStyle { muster, torchrun };

/// Where the key of a launch in a step of Slurm's comes from, on the node that serves the rendezvous.
enum class LaunchKey {
    given,       ///< The user's.
    munge,       ///< Made for this launch: other nodes get it by munge alone.
    home,        ///< ~/.muster/key, because munge did not work. Other nodes may have it in the same home directory.
    home_alone,  ///< The same, and nobody can decode what munge makes here.
};

/// --preflight: what is looked at before and while a node joins. Each includes those before it.
enum class Preflight {
    off,
    local,  ///< This node, beside the join.
    pairs,  ///< The links between the job's nodes, before the first round.
    full,   ///< Also the GPUs of this node.
};

struct LaunchConfig {
    // -- who takes part --
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    bool nodes_given = false;  ///< True if --nnodes is given. If not, one node may be an oversight.
    WorkerCount worker_count = WorkerCount::given;
    std::uint32_t workers_per_node = 1;
    std::uint32_t spares = 0;
    std::string role = "default";
    std::int32_t node_rank = -1;  ///< -1: not given

    // -- rendezvous --
    Backend backend = Backend::fixed;
    /// The option that named the endpoint's host: --rdzv-endpoint or --master-addr. Empty: none.
    std::string endpoint_option;
    Endpoint endpoint;  ///< The daemon's endpoint; for `fixed` also MASTER_ADDR:MASTER_PORT. Port 0: one node, any free
                        ///< port.
    std::vector<Endpoint> more_endpoints;  ///< Further daemons that share their state with the first one (etcd).
    /// --rdzv-backend etcd: `endpoint` is one of its members, and the nodes' own daemons share their state there.
    std::optional<rendezvous::EtcdPlace> etcd;
    std::string etcd_login_file;  ///< MUSTER_ETCD_LOGIN_FILE. Empty: etcd without authentication.
    PortRange daemon_ports;  ///< --rdzv-conf daemon_port: port of this node's daemon with etcd. {0, 0}: any free port.
    std::string job = "none";
    std::string named_job = "none";  ///< --rdzv-id as given. A single node may run under a random id.
    bool standalone = false;         ///< Given or implied: one node, its own daemon, a random job id.
    std::optional<bool> is_host;     ///< --rdzv-conf is_host. Empty: derived from the endpoint.
    std::string local_address;       ///< --local-addr. Empty: determined automatically.
    Duration join_timeout = 600s;    ///< Includes the wait for a host that starts later.
    Duration last_call = 30s;
    Duration lease = 5s;  ///< A node that sends nothing for this time is lost.
    Duration lost_timeout = 60s;
    PortRange store_ports;  ///< --store-port. {0, 0}: any free port.
    /// --store-relay: the workers of each node but rank 0's reach the store through their agent, at 127.0.0.1.
    bool store_relay = false;
    bool store_door = false;  ///< --store-door, or encrypt: as store_relay, and other hosts need the key.
    bool share_store = true;  ///< False: TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, worker rank 0 binds a probed port.

    bool allow_root = false;                   ///< --allow-root: workers may run as root under a systemd unit.
    LocalUsers local_users = LocalUsers::own;  ///< --local-users, for each port of this node.
    std::string wire_security = "auth";        ///< --wire-security: auth or encrypt.
    bool insecure = false;                     ///< --insecure: ports accept other hosts without a key.
    bool no_web = false;                       ///< --no-web: this node's own daemon has no page.
    /// --allow-from, for each port of this node. Null: all addresses; the round's store serves its nodes.
    std::shared_ptr<const AllowedSources> allow_from;
    /// The job's key (rendezvous/secret/job_key.h). Empty: every node that reaches the rendezvous may join.
    std::string key;
    /// The keys that this node's own daemon accepts for a job. Empty without a secret.
    std::function<std::vector<std::string>(std::string_view job)> keys;

    bool awaits_key = false;  ///< `key` is known later, from munge (node/launch_key.h).
    LaunchKey launch_key = LaunchKey::given;

    // -- what runs --
    EntryKind entry = EntryKind::by_content;
    std::string script;
    std::vector<std::string> arguments;
    bool virtual_local_rank = false;
    bool local_rank_argument = false;  ///< --local-rank=N precedes `arguments`, as with torch.distributed.launch.
    std::optional<agent::NumaBinding> numa_binding;  ///< Empty: workers may use all CPUs of muster.
    bool threads_from_cores = false;                 ///< --omp auto. False: OMP_NUM_THREADS has torchrun's value.
    std::string torch_backend;                       ///< --torch-backend: "muster". Empty: torch's own choice.
    bool torch_steps = false;                        ///< --torch-steps: steps of PyTorch's optimizers are reported.
    std::string
        preflight_fault;  ///< What the test before the job found of this node (job_preflight.h). Empty: nothing.
    std::vector<agent::Placement> placements;  ///< Indexed by local rank, set by resolve_placement. Empty: unbound.
    std::vector<std::uint32_t> threads;  ///< Indexed by local rank, set by resolve_placement. Empty: torchrun's value.

    // -- restarts and ends --
    std::uint32_t restarts_max = 0;
    Duration restarts_window{};  ///< restarts_max applies to any period of this length. 0: to the whole job.
    /// A node that caused this many of the last node_failures_of rounds is excluded from the next ones. 0: off.
    /// Default: 2 of 5 with spares, which replace it at no cost; off without spares.
    std::uint32_t node_failures_max = 0;
    std::uint32_t node_failures_of = 0;
    /// Restart also after a failure that will repeat: a missing module, a bad option. Default: off.
    bool restart_early_failures = false;
    bool keep_workers = false;     ///< --on-worker-failure=keep: a failed worker is started again, the others run on.
    std::uint32_t keep_limit = 3;  ///< --keep-limit: with keep_workers, for each worker of a round.
    std::string checkpoint_dir;    ///< Absolute path. Empty: none, and progress is not checked.
    std::string checkpoint_local_dir;  ///< Absolute path. Empty: none.
    /// Maximum of restarts in a row without a newer checkpoint in checkpoint_dir. 0: no limit. If a restart helps at
    /// all, usually the first one does.
    std::uint32_t stalled_restarts_max = 3;
    Duration persist_limit = 60s;  ///< --persist-timeout: time to write the agents' copies to disk at the job's end.
    Duration grace = 30s;          ///< --shutdown-timeout.
    Duration hang_timeout = 10s;   ///< --hang-timeout: a stopped worker that others wait for is killed after this time.
                                   ///< 0: never. Longer than the pauses of a normal step.
    std::vector<int> handled_signals;                                    ///< Default: SIGTERM, SIGINT, SIGHUP, SIGQUIT.
    std::string handled_signal_names = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  ///< As exported to the workers.
    std::uint32_t warm_workers = 0;  ///< --warm-workers: standby processes of this node. 0: none.
    bool warm_by_memory = false;     ///< --warm-workers auto: one for each worker, as far as memory allows.
    bool warm_before_join = false;   ///< --warm-join: they are ready before this node joins.
    std::string warm_imports;        ///< --warm-imports, separated by commas. Empty: torch, if it is installed.
    int preemption_signal = 0;       ///< Sent to any agent, it gives a notice to all workers of the job. 0: none.
    Preflight preflight = Preflight::local;
    std::set<std::string> preflight_skip;  ///< --preflight-skip: names of checks and looks.
    std::string preflight_limits_file;     ///< --preflight-limits. Empty: none.
    std::string preflight_limits;          ///< The text of that file, set by take_preflight_rules().
    std::string health_check;              ///< --health-check: a command for /bin/sh -c before each join. Empty: none.
    std::string health_dir = "/etc/muster/health.d";  ///< --health-dir. Empty: none.
    Duration health_interval = 60s;                   ///< --health-interval
    Duration health_limit = 30s;                      ///< --health-timeout
    /// --allow-faults: muster fault may kill this node's workers, its agent and its daemon.
    bool allow_faults = false;
    ExitCodeStyle exit_codes = ExitCodeStyle::muster;

    // -- output --
    std::string log_dir;        ///< Base directory. Empty: no files unless -r or -t request them, then under $TMPDIR.
    bool log_dir_null = false;  ///< --log-dir /dev/null: no directory.
    StreamChoice redirects;
    StreamChoice tee;
    std::vector<std::uint32_t> local_ranks_filter;
    std::vector<std::string> stdout_filters;
    std::vector<std::string> stderr_filters;
    std::string prefix_template;  ///< TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE. Empty: "[${role_name}${local_rank}]:".
    bool host_prefix = false;     ///< Prefix [host:rank] on every line.
    ConsoleLines console = ConsoleLines::automatic;  ///< --console: equal lines of many ranks once, or each line.
    LogLevel log_level = LogLevel::warning;
    std::string report;          ///< --report as given (report_writer.h). Empty: no file.
    std::string events;          ///< --events as given, with the same names. Empty: no file.
    std::string gpu_job_dir;     ///< --hpc-job-mapping-dir. Empty: the GPUs' job is not told.
    std::string metrics_dir;     ///< --metrics-file. Empty: no file.
    ListenPlace metrics_listen;  ///< --metrics-listen. Without an address: no port.
    bool gpu_use = false;        ///< --gpu-use: how busy this node's GPUs are is asked while workers run.
    bool torch_events = false;   ///< --event-log-handler console: torchrun's lines on stderr.
};

/// The job may have more nodes than this one.
inline bool has_other_nodes(const LaunchConfig& config) {
    return config.nodes_max > 1 || config.spares > 0;
}

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
