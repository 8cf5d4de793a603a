#include "launcher/options/option_table.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "launcher/config/option_values.h"
#include "launcher/report/report_writer.h"
#include "rendezvous/base/system/absolute_path.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/wire/native/limits.h"

namespace muster::launcher {

namespace {

using Accepted = std::optional<std::string>;
constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

Accepted whole(std::string_view value, std::int64_t lowest, std::uint32_t& field) {
    return read_into(whole_number(value, lowest, most), field, cat("a whole number from ", lowest, " to ", most));
}

Accepted positive_seconds(std::string_view value, Duration& field) {
    const auto duration = seconds(value);
    if (!duration || *duration <= Duration::zero()) return "seconds above 0, e.g. 5 or 0.5";
    field = *duration;
    return std::nullopt;
}

Accepted flag(std::string_view value, bool& field) {
    const auto number = whole_number(value);
    field = number.value_or(0) != 0;
    return number ? Accepted() : "1 or 0";
}

Accepted one_of(std::string_view value, const std::vector<std::string>& names) {
    if (std::ranges::find(names, value) != names.end()) return std::nullopt;
    return cat(join(std::vector(names.begin(), names.end() - 1), ", "), " or ", names.back(),
               nearest_in_brackets(value, names));
}

/// `field` becomes the meaning of the value.
template <class Field>
Accepted choose(std::string_view value, Field& field,
                std::initializer_list<std::pair<std::string_view, std::type_identity_t<Field>>> choices) {
    std::vector<std::string> names;
    for (const auto& [name, meaning] : choices) {
        if (name == value) field = meaning;
        names.emplace_back(name);
    }
    return one_of(value, names);
}

Accepted accept_nodes(std::string_view value, Settings& settings) {
    const auto range = node_range(value);
    if (!range) return "N or MIN:MAX with 0 < MIN <= MAX <= 20000, e.g. 2 or 1:4";
    settings.config.nodes_min = range->min;
    settings.config.nodes_max = range->max;
    settings.config.nodes_given = true;
    return std::nullopt;
}

Accepted accept_workers(std::string_view value, Settings& settings) {
    auto& config = settings.config;
    if (value == "auto" || value == "gpu" || value == "cpu") {
        config.worker_count = value == "auto"  ? WorkerCount::automatic
                              : value == "gpu" ? WorkerCount::gpu
                                               : WorkerCount::cpu;
        return std::nullopt;
    }
    if (value == "xpu")
        return "a number, auto, gpu or cpu (counting xpu devices is not supported yet: write their number)";
    const auto number = whole_number(value, 1, native::slots_max);
    if (!number)
        return cat("a number from 1 to ", native::slots_max, ", auto, gpu or cpu",
                   nearest_in_brackets(value, {"auto", "gpu", "cpu"}));
    config.worker_count = WorkerCount::given;
    config.workers_per_node = static_cast<std::uint32_t>(*number);
    return std::nullopt;
}

Accepted accept_backend(std::string_view value, Settings& settings) {
    settings.etcd_backend = value.starts_with("etcd");
    return choose(
        value, settings.config.backend,
        {{"c10d", Backend::c10d}, {"static", Backend::fixed}, {"etcd", Backend::c10d}, {"etcd-v2", Backend::c10d}});
}

Accepted accept_numa(std::string_view value, Settings& settings) {
    using agent::NumaBinding;
    return choose(value, settings.config.numa_binding,
                  {{"node", NumaBinding::node},
                   {"socket", NumaBinding::socket},
                   {"exclusive", NumaBinding::exclusive},
                   {"core-complex", NumaBinding::core_complex}});
}

Accepted accept_omp(std::string_view value, Settings& settings) {
    const auto wrong = choose(value, settings.config.threads_from_cores, {{"auto", true}, {"torchrun", false}});
    return wrong ? cat(*wrong, "; for a fixed number set OMP_NUM_THREADS=N in the environment") : wrong;
}

Accepted accept_event_handler(std::string_view value, Settings& settings) {
    const auto wrong = choose(value, settings.config.torch_events,
                              {{"null", false}, {"console", true}, {"dynamic_rendezvous", false}});
    return wrong ? cat(*wrong, "; Python plug-ins as handlers are not supported") : wrong;
}

Accepted accept_warm_workers(std::string_view value, Settings& settings) {
    auto& config = settings.config;
    config.warm_by_memory = value == "auto";
    const auto number = config.warm_by_memory ? native::slots_max : whole_number(value, 0, native::slots_max);
    if (!number)
        return cat("a number from 0 to ", native::slots_max, ", or auto", nearest_in_brackets(value, {"auto"}));
    config.warm_workers = static_cast<std::uint32_t>(*number);
    return std::nullopt;
}

Accepted accept_log_dir(std::string_view value, Settings& settings) {
    settings.config.log_dir_null = value == "/dev/null";
    settings.config.log_dir = settings.config.log_dir_null || value.empty() ? "" : absolute_path(value);
    return std::nullopt;
}

Accepted accept_directory(std::string_view value, std::string& field) {
    if (value.empty()) return "a directory";
    field = absolute_path(value);
    return std::nullopt;
}

Accepted accept_streams(std::string_view value, StreamChoice& field) {
    return read_into(stream_choice(value), field,
                     "0, 1 (stdout), 2 (stderr), 3 (both), or LOCAL_RANK:MASK,..., e.g. 0:3,12:1");
}

Accepted accept_ranks_filter(std::string_view value, Settings& settings) {
    auto& filter = settings.config.local_ranks_filter;
    filter.clear();
    return value.empty() ? Accepted()
                         : read_into(local_ranks(value), filter, "comma-separated local ranks, e.g. 0,1,2");
}

Accepted accept_signals(std::string_view value, Settings& settings) {
    auto list = signal_list(value);
    for (const auto& name : list.unusable)
        settings.warnings.push_back(
            cat("--signals-to-handle: '", name, "' is not a signal that can be handled; it is ignored"));
    settings.config.handled_signals = std::move(list.numbers);
    settings.config.handled_signal_names = value;
    return std::nullopt;
}

Accepted whole_seconds(std::string_view value, std::int64_t highest, auto& field) {
    const auto number = whole_number(value, 0, highest);
    if (!number) return cat("whole seconds from 0 to ", highest);
    field = std::chrono::seconds(*number);
    return std::nullopt;
}

Accepted accept_restarts(std::string_view value, Settings& settings) {
    const auto budget = restart_budget(value);
    if (!budget)
        return cat("a whole number from 0 to ", most,
                   ", or N/WINDOW with a window in s, m, h or d, at most 30 days, e.g. 3 or 10/1h");
    settings.config.restarts_max = budget->count;
    settings.config.restarts_window = budget->window;
    return std::nullopt;
}

Accepted accept_allow_from(std::string_view value, Settings& settings) {
    auto sources = AddressSet::parse(value);
    if (!sources) return "addresses and networks, e.g. 10.0.0.0/8,fd00::/8";
    settings.config.allow_from = muster::allow_from(*std::move(sources));
    return std::nullopt;
}

Accepted accept_named_file(std::string_view value, std::string& file) {
    if (value.empty() || !report_path(value, {})) return "a file name; %h, %j, %p and %% in it are replaced";
    file = value;
    return std::nullopt;
}

using Kind = ValueKind;
using Group = OptionGroup;
using From = Origin;

constexpr std::array rows{
    // clang-format off
    OptionRow{"nnodes", 0, Kind::value, Group::nodes, From::torchrun, true, "N|MIN:MAX",
              "Number of nodes, or the range within which nodes may join and leave.", "1:1", accept_nodes},
    OptionRow{"nproc-per-node", 0, Kind::value, Group::nodes, From::torchrun, true, "N|auto|gpu|cpu",
              "Workers on this node. auto: one for each GPU that CUDA sees, else one for each CPU. Nodes may use different numbers.", "1",
              accept_workers},
    OptionRow{"node-rank", 0, Kind::value, Group::nodes, From::torchrun, true, "R",
              "static: this node's group rank. c10d: the preferred group rank in the first round.", "0",
              [](auto value, auto& to) { return read_into(whole_number(value, 0, 19'999), to.config.node_rank, "a whole number from 0 to MAX nodes - 1"); }},
    OptionRow{"role", 0, Kind::value, Group::nodes, From::torchrun, true, "NAME", "Role of this node's workers.", "default",
              [](auto value, auto& to) -> Accepted { to.config.role = value; return std::nullopt; }},
    OptionRow{"spares", 0, Kind::value, Group::nodes, From::muster, true, "K",
              "The first round waits, up to the last call, for K spare nodes beyond MAX. A spare replaces a node that is lost.", "0",
              [](auto value, auto& to) { return whole(value, 0, to.config.spares); }},

    OptionRow{"from", 0, Kind::value, Group::nodes, From::muster, true, "NAME",
              "Source of the number of nodes, endpoint, job id and number of workers that are not given. slurm, mpi (mpirun), kubernetes (indexed job), none, or auto (detected).", "auto",
              [](auto value, auto&) { return one_of(value, {"auto", "slurm", "mpi", "kubernetes", "none"}); }},
    OptionRow{"standalone", 0, Kind::flag, Group::rendezvous, From::torchrun, true, "",
              "Runs one node with its own rendezvous on a free port. Overrides --rdzv-backend, --rdzv-endpoint and --rdzv-id. Implied for one node without --rdzv-endpoint and --master-port.", "",
              [](auto value, auto& to) { return flag(value, to.standalone_asked); }},
    OptionRow{"rdzv-backend", 0, Kind::value, Group::rendezvous, From::torchrun, true, "c10d|static|etcd",
              "c10d (elastic), static, or etcd (elastic and highly available). etcd-v2 is an alias of etcd.", "static",
              accept_backend},
    OptionRow{"rdzv-endpoint", 0, Kind::value, Group::rendezvous, From::torchrun, true, "HOST[:PORT]",
              "Address of the rendezvous: a musterd, or one of the nodes, which then hosts it. A comma-separated list names several musterd that share their state, or the members of etcd. Several addresses of one host: [A,B]:PORT.", "",
              [](auto value, auto& to) -> Accepted { to.endpoint_text = trim(value); return std::nullopt; }},
    OptionRow{"rdzv-id", 0, Kind::value, Group::rendezvous, From::torchrun, true, "JOB", "Job id, the same on all nodes of the job.", "none",
              [](auto value, auto& to) -> Accepted { to.config.job = value; return std::nullopt; }},
    OptionRow{"rdzv-conf", 0, Kind::value, Group::rendezvous, From::torchrun, true, "K=V,...",
              "join_timeout, last_call_timeout, is_host, keep_alive_interval, keep_alive_max_attempt, timeout (static, etcd); for etcd also protocol, cacert, cert, key, etcd_prefix, daemon_port. Of a repeated option the last one counts.", "",
              [](auto value, auto& to) -> Accepted { to.rendezvous_conf = value; return std::nullopt; }},
    OptionRow{"master-addr", 0, Kind::value, Group::rendezvous, From::torchrun, true, "HOST", "static: host of node rank 0.", "127.0.0.1",
              [](auto value, auto& to) -> Accepted { to.master_addr = std::string(trim(value)); return std::nullopt; }},
    OptionRow{"master-port", 0, Kind::value, Group::rendezvous, From::torchrun, true, "PORT", "static: port on node rank 0.", "29500",
              [](auto value, auto& to) { return read_into(whole_number(value, 0, 65'535), to.master_port, "a port from 0 to 65535"); }},
    OptionRow{"local-addr", 0, Kind::value, Group::rendezvous, From::torchrun, true, "HOST",
              "Host name or address that this node advertises to the other nodes.", "",
              [](auto value, auto& to) -> Accepted { if (value.size() > 255) return "a name or address of at most 255 bytes";
                                                     to.config.local_address = trim(value); return std::nullopt; }},
    OptionRow{"store-port", 0, Kind::value, Group::rendezvous, From::muster, true, "P[-Q]",
              "Port or port range of the workers' store on this node, e.g. for a firewall. Default: any free port.", "",
              [](auto value, auto& to) { return read_into(parse_port_range(value), to.config.store_ports,
                                                          "a port P or a range P-Q, from 1 to 65535, e.g. 29600-29610, or 0 for any free port"); }},
    OptionRow{"store-relay", 0, Kind::flag, Group::rendezvous, From::muster, true, "",
              "The workers of each node share one connection to the workers' store. Their MASTER_ADDR is then 127.0.0.1, and MUSTER_STORE_ADDR the store's address. "
              "For jobs with more workers than the store's host may open files; not for scripts that open ports of their own at MASTER_ADDR.", "",
              [](auto value, auto& to) { return flag(value, to.config.store_relay); }},
    OptionRow{"store-door", 0, Kind::flag, Group::rendezvous, From::muster, true, "",
              "As --store-relay, and the store serves other hosts only by TLS with the job's key. Give it on all nodes.", "",
              [](auto value, auto& to) { return flag(value, to.config.store_door); }},
    OptionRow{"local-users", 0, Kind::value, Group::rendezvous, From::muster, true, "own|all",
              "The users of this host whom this node's ports serve. own: root and the user of muster. all: everyone; for workers that run as another user.", "own",
              [](auto value, auto& to) { return choose(value, to.config.local_users, {{"own", LocalUsers::own}, {"all", LocalUsers::all}}); }},
    OptionRow{"insecure", 0, Kind::flag, Group::rendezvous, From::muster, true, "",
              "Ports accept other hosts without a key: every host that reaches them can join the job. Default: a key, ~/.muster/key or another source (muster key --help).", "",
              [](auto value, auto& to) { return flag(value, to.config.insecure); }},
    OptionRow{"no-web", 0, Kind::flag, Group::rendezvous, From::muster, true, "",
              "The daemon in this launcher answers no browser: neither the page at / nor its stream.", "",
              [](auto value, auto& to) { return flag(value, to.config.no_web); }},
    OptionRow{"wire-security", 0, Kind::value, Group::rendezvous, From::muster, true, "auth|encrypt",
              "How the runtime's TCP connections between ranks are protected in a job with a key. auth: each begins with proofs of both ends. encrypt: their data is encrypted, too, and so is the workers' store of several nodes, as with --store-door, but not with --rdzv-backend static.", "auth",
              [](auto value, auto& to) { return choose(value, to.config.wire_security, {{"auth", "auth"}, {"encrypt", "encrypt"}}); }},
    OptionRow{"allow-from", 0, Kind::value, Group::rendezvous, From::muster, true, "ADDRESS[/BITS],...",
              "Other hosts whom this node's ports serve. The workers' store serves the nodes of its round in any case, and these as well, e.g. nodes behind NAT.", "all; the workers' store: the round's nodes",
              accept_allow_from},
    OptionRow{"lease", 0, Kind::value, Group::rendezvous, From::muster, true, "SECONDS",
              "A node without a heartbeat for this time counts as lost.", "5",
              [](auto value, auto& to) { return positive_seconds(value, to.lease.emplace()); }},
    OptionRow{"rdzv-lost-timeout", 0, Kind::value, Group::rendezvous, From::muster, true, "SECONDS",
              "How long workers keep running while the rendezvous is unreachable.", "60",
              [](auto value, auto& to) { return positive_seconds(value, to.lost_timeout.emplace()); }},

    OptionRow{"module", 'm', Kind::flag, Group::program, From::torchrun, true, "", "The program is a Python module (python -m).", "",
              [](auto value, auto& to) { return flag(value, to.module); }},
    OptionRow{"no-python", 0, Kind::flag, Group::program, From::torchrun, true, "", "Runs the program itself, without Python.", "",
              [](auto value, auto& to) { return flag(value, to.no_python); }},
    OptionRow{"run-path", 0, Kind::flag, Group::program, From::torchrun, true, "",
              "Runs the script, an absolute path, with runpy.run_path in a new Python process. Overrides --no-python.", "",
              [](auto value, auto& to) { return flag(value, to.run_path); }},
    OptionRow{"virtual-local-rank", 0, Kind::flag, Group::program, From::torchrun, true, "",
              "LOCAL_RANK is 0 for every worker, and each sees only its own GPU.", "",
              [](auto value, auto& to) { return flag(value, to.config.virtual_local_rank); }},
    OptionRow{"allow-root", 0, Kind::flag, Group::program, From::muster, true, "",
              "Under a systemd unit: allows workers to run as root. Elsewhere it has no effect.", "",
              [](auto value, auto& to) { return flag(value, to.config.allow_root); }},
    OptionRow{"numa-binding", 0, Kind::value, Group::program, From::torchrun, false, "MODE",
              "Binds each worker to the CPUs and memory near its GPU (without GPUs: NUMA nodes in turn). node: all of the NUMA node; socket: all of its socket; exclusive: a share of the node's cores; core-complex: cores that share a cache.", "", accept_numa},
    OptionRow{"omp", 0, Kind::value, Group::program, From::muster, true, "auto|torchrun",
              "OMP_NUM_THREADS of workers if the environment does not set it. auto: the number of cores of each worker; torchrun: 1 if there are several workers.", "torchrun", accept_omp},
    OptionRow{"torch-backend", 0, Kind::value, Group::program, From::muster, true, "muster|torch",
              "Back end of PyTorch's process groups on the CPU, in scripts that ask for gloo or for nothing. torch: the one that the script asks for.", "torch",
              [](auto value, auto& to) { return choose(value, to.config.torch_backend, {{"muster", "muster"}, {"torch", ""}}); }},
    OptionRow{"torch-steps", 0, Kind::flag, Group::program, From::muster, true, "",
              "Reports each step of PyTorch's optimizer as the script's step, for scripts that do not call muster.progress().", "off",
              [](auto value, auto& to) { return flag(value, to.config.torch_steps); }},

    OptionRow{"max-restarts", 0, Kind::value, Group::restarts, From::torchrun, true, "N[/WINDOW]",
              "Maximum number of restarts after worker failures, for the whole job or within a sliding window, e.g. 10/1h.", "0", accept_restarts},
    OptionRow{"node-failures", 0, Kind::value, Group::restarts, From::muster, true, "M/N",
              "Excludes a node that is the first cause of M of the last N failed rounds; a spare replaces it. A node is kept if fewer than MIN nodes would remain. 0: off. Default: 2/5 with --spares, else 0.", "",
              [](auto value, auto& to) { return read_into(node_failures(value), to.node_failures, "M/N with 0 < M <= N <= 100, e.g. 2/5, or 0 to exclude no node"); }},
    OptionRow{"restart-early-failures", 0, Kind::flag, Group::restarts, From::muster, true, "",
              "Restarts also after failures that a restart repeats: a missing module, a syntax error or a bad option before the first step, or a full disk during a checkpoint.", "",
              [](auto value, auto& to) { return flag(value, to.config.restart_early_failures); }},
    OptionRow{"on-worker-failure", 0, Kind::value, Group::restarts, From::muster, true, "restart|keep",
              "restart: a failed worker ends the round, and all workers start again. keep: it alone is started again, with the same rank, and the others keep running; for scripts that recover by themselves, e.g. with torchft.", "restart",
              [](auto value, auto& to) { return choose(value, to.config.keep_workers, {{"restart", false}, {"keep", true}}); }},
    OptionRow{"keep-limit", 0, Kind::value, Group::restarts, From::muster, true, "N",
              "With --on-worker-failure=keep: how often each worker of a round is started again. Its next failure ends the round.", "3",
              [](auto value, auto& to) { return whole(value, 1, to.config.keep_limit); }},
    OptionRow{"checkpoint-dir", 0, Kind::value, Group::restarts, From::muster, true, "DIR",
              "Directory of the workers' checkpoints (MUSTER_CHECKPOINT_DIR). Reports of restarts name the step that workers resume from.", "",
              [](auto value, auto& to) { return accept_directory(value, to.config.checkpoint_dir); }},
    OptionRow{"checkpoint-local-dir", 0, Kind::value, Group::restarts, From::muster, true, "DIR",
              "Directory on a local disk of each host for its workers' parts of each checkpoint (MUSTER_CHECKPOINT_LOCAL_DIR). Faster, but lost with the host.", "",
              [](auto value, auto& to) { return accept_directory(value, to.config.checkpoint_local_dir); }},
    OptionRow{"max-stalled-restarts", 0, Kind::value, Group::restarts, From::muster, true, "N",
              "With --checkpoint-dir: maximum number of consecutive restarts without a newer checkpoint; then the job exits with 77. 0: no limit.",
              "3", [](auto value, auto& to) { return whole(value, 0, to.config.stalled_restarts_max); }},
    OptionRow{"persist-timeout", 0, Kind::value, Group::restarts, From::muster, true, "SECONDS",
              "At the job's end, timeout for writing a newer step from the agents' memory to the checkpoint directory. 0: the step is lost.",
              "60", [](auto value, auto& to) { return whole_seconds(value, 86'400, to.config.persist_limit); }},
    OptionRow{"shutdown-timeout", 0, Kind::value, Group::restarts, From::torchrun, true, "SECONDS",
              "Grace period between the stop signal and SIGKILL, for every stop. Default also from TORCH_ELASTIC_SHUTDOWN_TIMEOUT.", "30",
              [](auto value, auto& to) { return whole_seconds(value, most, to.shutdown_timeout); }},
    OptionRow{"hang-timeout", 0, Kind::value, Group::restarts, From::muster, true, "SECONDS",
              "Reports a worker that delays a collective of muster's runtime and makes no progress for this time and for 3 times its longest pause. A worker stopped by a signal is killed; one that uses a CPU or does I/O is not reported. 0: off.", "10",
              [](auto value, auto& to) -> Accepted { const auto wait = seconds(value);
                  if (!wait || *wait < Duration::zero()) return "seconds, e.g. 10, or 0 to turn it off";
                  to.config.hang_timeout = *wait; return std::nullopt; }},
    OptionRow{"warm-workers", 0, Kind::value, Group::restarts, From::muster, true, "N|auto",
              "Standby processes on this node that have imported torch and become the workers of the next restart, so that it does not wait for imports. auto: one per worker while memory allows. Python scripts and modules only. Each takes the memory of an imported torch.", "0",
              accept_warm_workers},
    OptionRow{"warm-imports", 0, Kind::value, Group::restarts, From::muster, true, "MODULES",
              "With --warm-workers: modules that a standby process imports, separated by commas. The script itself is never imported.", "torch,torch._dynamo",
              [](auto value, auto& to) -> Accepted { if (!are_modules(value)) return "names of modules, e.g. torch or torch,transformers";
                  to.config.warm_imports = value; return std::nullopt; }},
    OptionRow{"warm-join", 0, Kind::flag, Group::restarts, From::muster, true, "",
              "With --warm-workers: joins when the standby processes are ready, after 60 s at the latest, and they become the first workers of this node. Nodes that are in a round then do not wait for the imports of one that comes.", "",
              [](auto value, auto& to) { return flag(value, to.config.warm_before_join); }},
    OptionRow{"signals-to-handle", 0, Kind::value, Group::restarts, From::torchrun, true, "NAMES",
              "Signals that stop the job and are forwarded to the workers.", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", accept_signals},
    OptionRow{"preemption-signal", 0, Kind::value, Group::restarts, From::muster, true, "SIGNAL",
              "Signal to muster on any node that sends a preemption notice to all workers of the job. They save a checkpoint and exit.", "",
              [](auto value, auto& to) { return read_into(handled_signal(value), to.config.preemption_signal, "name or number of a signal that can be handled, e.g. SIGUSR1"); }},
    OptionRow{"allow-faults", 0, Kind::flag, Group::restarts, From::muster, true, "",
              "Allows muster fault to kill, stop, slow down or disconnect workers and the agent of this node, for tests.", "",
              [](auto value, auto& to) { return flag(value, to.config.allow_faults); }},
    OptionRow{"preflight", 0, Kind::value, Group::restarts, From::muster, true, "off|local|pairs|full",
              "local: while the node joins, looks for its faults as muster doctor does, and logs what it finds. Nothing waits for it. pairs: also tests the links between the job's nodes before the first round. full: also tests their GPUs.", "local",
              [](auto value, auto& to) { return choose(value, to.config.preflight, {{"off", Preflight::off}, {"local", Preflight::local}, {"pairs", Preflight::pairs}, {"full", Preflight::full}}); }},
    OptionRow{"preflight-skip", 0, Kind::value, Group::restarts, From::muster, true, "NAMES",
              "Checks or looks that --preflight leaves out, separated by commas. muster doctor explain lists them.", "", [](auto value, auto& to) -> Accepted {
                  for (const auto name : split(value, ',')) { to.config.preflight_skip.emplace(trim(name)); }
                  return std::nullopt; }},
    OptionRow{"preflight-limits", 0, Kind::value, Group::restarts, From::muster, true, "FILE",
              "Limits of the checks of --preflight, as lines NAME = NUMBER: the file of muster doctor --limits.", "", [](auto value, auto& to) -> Accepted { if (value.empty()) return "a file"; to.config.preflight_limits_file = value; return std::nullopt; }},
    OptionRow{"health-check", 0, Kind::value, Group::restarts, From::muster, true, "COMMAND",
              "Command run by /bin/sh before the first join, and before the next round on a node that failed. Exit code 0: healthy. Another one: this node waits, uncharged, until a check passes, and a spare takes its place; the last line of the output is the reason.", "",
              [](auto value, auto& to) -> Accepted { if (value.empty()) return "a command"; to.config.health_check = value; return std::nullopt; }},
    OptionRow{"health-dir", 0, Kind::value, Group::restarts, From::muster, true, "DIR",
              "Directory of further checks: every executable in it that only root can change, in order of name, before --health-check. none: no such checks.", "/etc/muster/health.d",
              [](auto value, auto& to) -> Accepted { if (value.empty()) return "a directory, or none"; to.config.health_dir = value == "none" ? "" : value; return std::nullopt; }},
    OptionRow{"health-interval", 0, Kind::value, Group::restarts, From::muster, true, "SECONDS",
              "Time between two checks of a node that waits because it is sick.", "60", [](auto value, auto& to) { return positive_seconds(value, to.config.health_interval); }},
    OptionRow{"health-timeout", 0, Kind::value, Group::restarts, From::muster, true, "SECONDS",
              "Timeout of --health-check and all checks in --health-dir together. A check that does not end is killed with all that it started, no other one runs, and the node joins.", "30",
              [](auto value, auto& to) { return positive_seconds(value, to.config.health_limit); }},
    OptionRow{"exit-code", 0, Kind::value, Group::restarts, From::muster, true, "muster|torchrun",
              "muster: the exit code of the root cause (see below). torchrun: 1 for every failure.", "muster", [](auto value, auto& to) { return choose(value, to.config.exit_codes, {{"muster", ExitCodeStyle::muster}, {"torchrun", ExitCodeStyle::torchrun}}); }},

    OptionRow{"log-dir", 0, Kind::value, Group::output, From::torchrun, true, "DIR",
              "Base directory of the log files. Default: a new directory in TMPDIR, removed if it stays empty. /dev/null: no log files.", "", accept_log_dir},
    OptionRow{"redirects", 'r', Kind::value, Group::output, From::torchrun, true, "MASK|RANK:MASK,...",
              "Streams redirected to files: 0 none, 1 stdout, 2 stderr, 3 both.", "0", [](auto value, auto& to) { return accept_streams(value, to.config.redirects); }},
    OptionRow{"tee", 't', Kind::value, Group::output, From::torchrun, true, "MASK|RANK:MASK,...",
              "Streams written to files and, with a prefix, to the console.", "0", [](auto value, auto& to) { return accept_streams(value, to.config.tee); }},
    OptionRow{"local-ranks-filter", 0, Kind::value, Group::output, From::torchrun, true, "RANKS",
              "Local ranks whose output is shown on the console, e.g. 0,1.", "", accept_ranks_filter},
    OptionRow{"duplicate-stdout-filters", 0, Kind::value, Group::output, From::torchrun, true, "WORDS",
              "Copies lines of tee'd stdout that contain one of these words to filtered_stdout.log. ',,' is a literal comma.", "",
              [](auto value, auto& to) -> Accepted { to.config.stdout_filters = comma_list(value); return std::nullopt; }},
    OptionRow{"duplicate-stderr-filters", 0, Kind::value, Group::output, From::torchrun, true, "WORDS",
              "The same for stderr and filtered_stderr.log.", "", [](auto value, auto& to) -> Accepted { to.config.stderr_filters = comma_list(value); return std::nullopt; }},
    OptionRow{"prefix", 0, Kind::value, Group::output, From::muster, true, "worker|host",
              "Prefix of tee'd lines. worker: [role local-rank]: as torchrun; host: [host:rank] before every line.", "worker",
              [](auto value, auto& to) { return choose(value, to.config.host_prefix, {{"worker", false}, {"host", true}}); }},
    OptionRow{"console", 0, Kind::value, Group::output, From::muster, true, "auto|fold|all",
              "fold: a line that many workers of this node print is shown once, with the ranks. all: each line. auto: fold on a terminal with more than 8 workers.", "auto",
              [](auto value, auto& to) { return choose(value, to.config.console, {{"auto", ConsoleLines::automatic}, {"fold", ConsoleLines::fold}, {"all", ConsoleLines::all}}); }},
    OptionRow{"report", 0, Kind::value, Group::output, From::muster, true, "FILE",
              "Writes this node's report as JSON to FILE at the end of the job. %h, %j and %p stand for the host, the job and the launcher's pid.", "",
              [](auto value, auto& to) { return accept_named_file(value, to.config.report); }},
    OptionRow{"events", 0, Kind::value, Group::output, From::muster, true, "FILE",
              "Appends what happens on this node to FILE, one JSON line (CloudEvents 1.0) each. %h, %j and %p as for --report.", "",
              [](auto value, auto& to) { return accept_named_file(value, to.config.events); }},
    OptionRow{"metrics-file", 0, Kind::value, Group::output, From::muster, true, "DIR",
              "Writes metrics of this node's workers to DIR/muster_JOB.prom every 5 s, for node_exporter's textfile collector.", "",
              [](auto value, auto& to) { return accept_directory(value, to.config.metrics_dir); }},
    OptionRow{"metrics-listen", 0, Kind::value, Group::output, From::muster, true, "[ADDR:]PORT[-LAST]",
              "Serves the metrics of --metrics-file as GET /metrics, at 127.0.0.1 by default. Off loopback it asks for the token that musterd --metrics-token prints with the job's key.", "",
              [](auto value, auto& to) -> Accepted { if (auto place = listen_place(value)) to.config.metrics_listen = *std::move(place);
                  else return "[ADDR:]P or [ADDR:]P-Q, e.g. 9501, 0.0.0.0:9501 or [::]:9501-9508; 0 is any free port";
                  return std::nullopt; }},
    OptionRow{"gpu-use", 0, Kind::flag, Group::output, From::muster, true, "",
              "Asks the NVIDIA driver every minute how busy this node's GPUs are, for muster top, muster status, the page and --metrics-file.", "off",
              [](auto value, auto& to) { return flag(value, to.config.gpu_use); }},
    OptionRow{"hpc-job-mapping-dir", 0, Kind::value, Group::output, From::muster, true, "DIR",
              "Names this job in DIR for each GPU of its workers, for dcgm-exporter's option of this name.", "",
              [](auto value, auto& to) { return accept_directory(value, to.config.gpu_job_dir); }},
    OptionRow{"log-level", 0, Kind::value, Group::output, From::muster, true, "debug|info|warning|error",
              "Lowest level of muster's own log lines. Default also from LOGLEVEL.", "warning",
              [](auto value, auto& to) -> Accepted { if (parse_log_level(value, to.config.log_level)) return std::nullopt; return "debug, info, warning or error"; }},

    OptionRow{"monitor-interval", 0, Kind::value, Group::compatibility, From::torchrun, true, "SECONDS",
              "No effect: muster detects worker exits immediately.", "0.1",
              [](auto value, auto&) { Duration unused{}; return positive_seconds(value, unused); }},
    OptionRow{"start-method", 0, Kind::value, Group::compatibility, From::torchrun, true, "spawn|fork|forkserver",
              "No effect.", "spawn", [](auto value, auto&) { return one_of(value, {"spawn", "fork", "forkserver"}); }},
    OptionRow{"event-log-handler", 0, Kind::value, Group::compatibility, From::torchrun, true, "null|console|dynamic_rendezvous",
              "console: prints torchrun's JSON lines about the workers' starts and ends on stderr.", "null", accept_event_handler},
    OptionRow{"logs-specs", 0, Kind::value, Group::compatibility, From::torchrun, false, "NAME", "Only default is supported.", "default",
              [](auto value, auto&) -> Accepted { if (value == "default") return std::nullopt;
                  return "default (Python plug-ins as log specifications are not supported)"; }},

    OptionRow{"use-env", 0, Kind::flag, Group::compatibility, From::muster, false, "",
              "From torch.distributed.launch: workers read LOCAL_RANK from their environment, as they always can.", "",
              [](auto value, auto& to) { return flag(value, to.use_env); }},
    OptionRow{"local-rank-argument", 0, Kind::flag, Group::compatibility, From::muster, false, "",
              "Passes --local-rank=N before each worker's own arguments, as torch.distributed.launch does. --use-env turns it off.", "",
              [](auto value, auto& to) { return flag(value, to.config.local_rank_argument); }},

    OptionRow{"config", 0, Kind::value, Group::about, From::muster, false, "FILE",
              "File with options, one per line, e.g. nnodes = 2, and with the program and its arguments. The command line overrides it. muster config check FILE validates it.", "",
              [](auto value, auto&) -> Accepted { if (value.empty()) return "a file"; return std::nullopt; }},
    OptionRow{"help", 'h', Kind::flag, Group::about, From::torchrun, false, "", "Prints this text.", "", nullptr},
    OptionRow{"version", 0, Kind::flag, Group::about, From::muster, false, "", "Prints the version.", "", nullptr},
    // clang-format on
};

}  // namespace

std::span<const OptionRow> option_table() {
    return rows;
}

const OptionRow* find_option(std::string_view name) {
    for (const auto& row : rows)
        if (row.name == name) return &row;
    return nullptr;
}

std::span<const CommandRow> command_table() {
    static constexpr CommandRow commands[] = {
        {"checkpoint", "DIR", "Lists and verifies the checkpoints in DIR, or exports one."},
        {"config", "check FILE", "Validates a job's configuration file."},
        {"doctor", "[explain NAME]",
         "Looks for faults of this node: names, network, limits, disks, GPUs, settings; tests links and GPUs."},
        {"drain", "NODE", "Makes a node stop its workers and leave its job."},
        {"fault", "KIND TARGET", "Injects a fault into a worker, a node or the daemon."},
        {"key", "[show | set | --job NAME]", "Makes the secret of your jobs, shows it, or sets it from stdin."},
        {"status", "[JOB]", "Shows the jobs of a daemon, and what is wrong."},
        {"top", "[JOB]", "Shows jobs and nodes on a screen, what is wrong first."},
        {"flight", "DIR...", "Reports from flight records which rank is missing from which collective."},
        {"logs", "JOB|DIR", "Shows the log files of a running job, or those below DIR, as one stream."},
        {"torch-build", "", "Compiles PyTorch's back end for a torch that muster has none for."},
    };
    return commands;
}

}  // namespace muster::launcher
