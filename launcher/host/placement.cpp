#include "launcher/host/placement.h"

#include "agent/process/side_process.h"
#include "agent/supervision/topology_text.h"
#include "launcher/config/option_values.h"
#include "launcher/host/cgroup_quota.h"
#include "launcher/host/gpu_count.h"
#include "launcher/host/program_output.h"
#include "rendezvous/base/kernel/first_line.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/number_ranges.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using namespace std::chrono_literals;

constexpr Duration topology_limit = 10s;  // machines with 1000 CPUs take 1 s

Result<agent::Topology> ask_for_topology() {
    const auto said = program_output({agent::side_program("muster-topology")}, topology_limit, [] { return false; });
    return agent::read_topology(said.value_or(std::string()));
}

/// The GPUs that CUDA shows to this process. Empty without a driver.
std::vector<agent::GpuFacts> gpu_facts(const Environment& environment) {
    const auto devices = ask_for_gpus(gpu_count_limit);
    if (!devices && has_gpu_driver(environment))
        log(LogLevel::warning,
            "--numa-binding: workers use the NUMA nodes in turn, not those of their GPUs: ", devices.error().context);
    if (!devices) return {};
    std::vector<agent::GpuFacts> facts;
    bool all_known = true;
    for (const auto index : visible_gpus(*devices, lookup(environment, "CUDA_VISIBLE_DEVICES"))) {
        const auto address = index < devices->size() ? (*devices)[index].pci_address : std::string();
        facts.push_back({address, numa_node_of(address)});
        all_known = all_known && facts.back().node.has_value();
    }
    if (!all_known)
        log(LogLevel::info,
            "--numa-binding: some GPUs have no known NUMA node (a single node, or a virtual machine); their workers "
            "use the NUMA nodes in turn");
    return facts;
}

void log_placements(const agent::Topology& topology, const LaunchConfig& config) {
    if (!topology.policy_trouble.empty())
        log(LogLevel::warning, cat("--numa-binding: CPUs are bound, memory is not (", topology.policy_trouble,
                                   "; a container needs the capability SYS_NICE): memory comes from the node of the "
                                   "CPU that first writes to it"));
    for (std::size_t local_rank = 0; local_rank < config.placements.size(); ++local_rank) {
        const auto& [cpus, nodes] = config.placements[local_rank];
        const auto memory = nodes.empty() ? std::string() : cat(", memory of NUMA node ", describe_ranges(nodes));
        log(LogLevel::info, cat("local rank ", local_rank, ": CPUs ", describe_ranges(cpus), memory));
    }
}

}  // namespace

std::optional<std::uint32_t> numa_node_of(const std::string& pci_address, const std::string& devices) {
    if (pci_address.empty()) return std::nullopt;
    const auto node = whole_number(first_line(cat(devices, '/', pci_address, "/numa_node")), 0, 1023);
    return node ? std::optional(static_cast<std::uint32_t>(*node)) : std::nullopt;
}

Result<void> resolve_placement(LaunchConfig& config, const Environment& environment) {
    const bool wants_threads = config.threads_from_cores && !lookup(environment, "OMP_NUM_THREADS");
    if (!config.numa_binding && !wants_threads) return {};
    auto topology = ask_for_topology();
    if (!topology)
        return Error{Errc::invalid_argument,
                     cat(config.numa_binding ? "--numa-binding" : "--omp=auto", ": ", topology.error().context,
                         ", so this machine's CPUs are unknown; install muster-topology beside muster or in PATH, or "
                         "remove the option")};
    if (config.numa_binding) {
        const auto gpus = gpu_facts(environment);
        auto placements = agent::place_workers(*config.numa_binding, *topology, gpus, config.workers_per_node);
        if (!placements) return Error{Errc::invalid_argument, cat("--numa-binding: ", placements.error().context)};
        config.placements = *std::move(placements);
        if (!topology->policy_trouble.empty())
            for (auto& placement : config.placements) placement.memory_nodes.clear();
        log_placements(*topology, config);
    }
    if (!wants_threads) return {};
    auto all = config.placements;
    all.resize(config.workers_per_node);
    config.threads = agent::worker_threads(*topology, all, cgroup_cpu_quota());
    log(LogLevel::info, cat("OMP_NUM_THREADS is ", config.threads.front(), " for local rank 0, from its cores"));
    return {};
}

}  // namespace muster::launcher
