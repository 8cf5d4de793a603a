// What this host and its scheduler say where the options are silent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// How many hosts the scheduler gave to this step, as its variables say.
struct SchedulerFacts {
    std::string name;              ///< "Slurm", "PMI", "Kubernetes"; empty: none found
    std::string variable;          ///< where `host_count` was read
    std::uint32_t host_count = 0;  ///< 0: not told
};
SchedulerFacts scheduler_facts(const Environment& environment);

/// Refuses a loopback endpoint where the scheduler says that there are several hosts, since each would be a job of its
/// own; also where --nnodes was left out beside an endpoint that was written. The error says what to write instead.
Result<void> check_endpoint(const LaunchConfig& config, const SchedulerFacts& scheduler);

/// CPUs for workers: those of the affinity mask, no more than the cgroup's quota (v2 and v1), at least one.
std::uint32_t usable_cpu_count();

/// A device of accelerators that are not NVIDIA's, e.g. "/dev/kfd" (AMD): nobody here can count them. Empty: none.
std::string uncounted_accelerator(const std::string& devices = "/dev");

/// Replaces auto, gpu and cpu by a number. The error says what was counted; a warning, that auto has taken the CPUs
/// of a host with accelerators which it cannot count. Loads NVML: call it after the guardian has
/// been forked.
Result<void> resolve_worker_count(LaunchConfig& config, const Environment& environment,
                                  const std::string& nvml_library = "libnvidia-ml.so.1");

/// Refuses --virtual-local-rank where CUDA_VISIBLE_DEVICES has fewer devices than there are workers; after
/// resolve_worker_count.
Result<void> check_visible_devices(const LaunchConfig& config, const Environment& environment);

/// A sentence for whoever starts one worker on a node with several GPUs; empty otherwise.
std::string single_worker_hint(const LaunchConfig& config, const Environment& environment);

/// The host's name (gethostname).
std::string host_name();

/// The numeric addresses of `host`, which may be one already, or several with commas between. Waits at most `limit`.
Result<std::vector<std::string>> resolve_host(const std::string& host, Duration limit);

/// Whether the host is this one by its name alone: localhost, or the host's own. No name service is asked, which may be
/// slow, or know another address (Debian's 127.0.1.1, a stale entry).
bool is_own_name(const std::string& host);

/// Warns where the endpoint is this host only because its name leads to loopback, though this host has another name:
/// on a copied /etc/hosts each node would wait alone. `addresses`: the endpoint's.
void warn_of_alias(const LaunchConfig& config, const std::vector<std::string>& addresses);

/// Is `host`, whose addresses are `addresses`, this host? By its name, or because one of the addresses is one of ours
/// (127.0.1.1 too); and where it has no address at all, because it is our name with its domain, or without.
bool is_own_host(const std::string& host, const std::vector<std::string>& addresses);

}  // namespace muster::launcher
