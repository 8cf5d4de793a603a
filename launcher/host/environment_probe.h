// Facts about this host and its scheduler that complete the options.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/host/gpu_count.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// The number of hosts that the scheduler gave to this step, from its variables.
struct SchedulerFacts {
    std::string name;              ///< "Slurm", "PMI", "Kubernetes". Empty: no scheduler found.
    std::string variable;          ///< The variable that has host_count.
    std::uint32_t host_count = 0;  ///< 0: unknown.
};
SchedulerFacts scheduler_facts(const Environment& environment);

/// Refuses a loopback endpoint if the scheduler reports several hosts, because each host would run its own job. Also
/// applies if --nnodes is missing beside an explicit endpoint. The error contains the correction.
Result<void> check_endpoint(const LaunchConfig& config, const SchedulerFacts& scheduler);

/// CPUs for workers: the affinity mask, limited by the cgroup's quota (v2 and v1), at least one.
std::uint32_t usable_cpu_count();

/// A device file of accelerators other than NVIDIA's, e.g. "/dev/kfd" (AMD). muster cannot count them. Empty: none.
std::string uncounted_accelerator(const std::string& devices = "/dev");

/// Replaces auto, gpu and cpu by a number. The error says what was counted. Logs a warning if auto uses the CPUs of a
/// host with uncounted accelerators. A driver that cannot list its GPUs within `limit` is an error
/// (timed_out, io), because nobody wants a worker for each CPU there. Starts muster-gpus: call it after the fork of the
/// guardian.
Result<void> resolve_worker_count(LaunchConfig& config, const Environment& environment,
                                  Duration limit = gpu_count_limit);

/// Refuses --virtual-local-rank if CUDA_VISIBLE_DEVICES has fewer devices than workers. Call it after
/// resolve_worker_count.
Result<void> check_visible_devices(const LaunchConfig& config, const Environment& environment);

/// A hint if one worker starts on a node with several GPUs. Empty otherwise.
std::string single_worker_hint(const LaunchConfig& config, const Environment& environment);

/// One sentence for each option that names only local ranks which this node does not have. No error, because nodes with
/// different numbers of workers may share a command line. Call it after resolve_worker_count.
std::vector<std::string> absent_rank_hints(const LaunchConfig& config);

/// True for localhost and this host's own name. Does not query a name service, which may be slow or have another
/// address (Debian's 127.0.1.1, a stale entry).
bool is_own_name(const std::string& host);

/// Warns if the endpoint is this host only because its name resolves to loopback, but this host has another name: with
/// a copied /etc/hosts each node would wait alone. `addresses` are the endpoint's.
void warn_of_alias(const LaunchConfig& config, const std::vector<std::string>& addresses);

/// True if `host` with these addresses is this host: by its name, or because one of the addresses (127.0.1.1 too) is
/// this host's. Without any address: if it is this host's name with or without its domain.
bool is_own_host(const std::string& host, const std::vector<std::string>& addresses);

}  // namespace muster::launcher
