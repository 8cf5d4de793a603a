#include "launcher/host/environment_probe.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "launcher/config/option_values.h"
#include "launcher/host/cgroup_quota.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

SchedulerFacts scheduler_facts(const Environment& environment) {
    struct Known {
        std::string_view scheduler;
        std::string_view variable;
    };
    // The step's count comes before the allocation's: a shell in an allocation of four hosts may run a step of one.
    constexpr std::array known{Known{"Slurm", "SLURM_STEP_NUM_NODES"}, Known{"Slurm", "SLURM_JOB_NUM_NODES"},
                               Known{"Slurm", "SLURM_NNODES"},         Known{"Open MPI", "OMPI_MCA_orte_num_nodes"},
                               Known{"Flux", "FLUX_JOB_NNODES"},       Known{"PBS", "PBS_NUM_NODES"}};
    for (const auto& [scheduler, variable] : known)
        if (const auto count = whole_number(value_or_empty(environment, variable), 1, 1'000'000))
            return {std::string(scheduler), std::string(variable), static_cast<std::uint32_t>(*count)};
    if (lookup(environment, "PMI_SIZE") || lookup(environment, "PMIX_RANK")) return {"PMI", {}, 0};
    if (lookup(environment, "KUBERNETES_SERVICE_HOST")) return {"Kubernetes", {}, 0};
    return {};
}

Result<void> check_endpoint(const LaunchConfig& config, const SchedulerFacts& scheduler) {
    if (config.standalone || scheduler.host_count < 2 || config.is_host || !is_loopback(config.endpoint.host))
        return {};
    // One node is fine if it was requested, or if no endpoint was given.
    const bool one_by_oversight = !config.nodes_given && !config.endpoint_option.empty() && config.endpoint.port != 0;
    if (config.nodes_max == 1 && !one_by_oversight) return {};
    return Error{Errc::invalid_argument,
                 cat(config.endpoint_option.empty() ? "--master-addr" : config.endpoint_option, ": got '",
                     config.endpoint.host, config.endpoint_option.empty() ? "' by default" : "'", ", but ",
                     scheduler.name, " reports ", scheduler.host_count, " hosts (", scheduler.variable,
                     "), so each would run its own job; write ", config.nodes_max == 1 ? "--nnodes and " : "",
                     "the name of one of them (Slurm: the first line of scontrol show hostnames), or ",
                     config.nodes_max == 1 ? "--nnodes=1 if each host runs its own job"
                                           : "--rdzv-conf is_host=1 on one node if all nodes run on this host")};
}

Result<void> check_visible_devices(const LaunchConfig& config, const Environment& environment) {
    const auto visible = lookup(environment, "CUDA_VISIBLE_DEVICES");
    if (!config.virtual_local_rank || !visible) return {};
    const auto device_count = split(*visible, ',').size();
    if (config.workers_per_node <= device_count) return {};
    return Error{
        Errc::invalid_argument,
        cat("--virtual-local-rank: CUDA_VISIBLE_DEVICES='", *visible, "' has ", device_count,
            device_count == 1 ? " device" : " devices", ", and each worker needs one, but --nproc-per-node is ",
            config.workers_per_node, "; lower it, or add devices to CUDA_VISIBLE_DEVICES")};
}

std::uint32_t usable_cpu_count() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    std::uint32_t count = 0;
    if (::sched_getaffinity(0, sizeof mask, &mask) == 0)
        count = static_cast<std::uint32_t>(CPU_COUNT(&mask));
    else  // more CPUs than a cpu_set_t holds
        count = std::thread::hardware_concurrency();
    if (const auto quota = cgroup_cpu_quota(); quota != 0) count = std::min(count, quota);
    return std::max(count, 1U);
}

std::string uncounted_accelerator(const std::string& devices) {
    // AMD, Ascend, Trainium, and the kernel's generic class.
    for (const char* name : {"/kfd", "/davinci0", "/neuron0", "/accel"})
        if (const auto path = devices + name; ::access(path.c_str(), F_OK) == 0) return path;
    return {};
}

Result<void> resolve_worker_count(LaunchConfig& config, const Environment& environment, Duration limit) {
    if (config.worker_count == WorkerCount::given) return {};
    std::uint32_t gpus = 0;
    std::string why = "no GPU was found";
    if (config.worker_count != WorkerCount::cpu) {
        const auto devices = ask_for_gpus(limit);
        const auto visible = lookup(environment, "CUDA_VISIBLE_DEVICES");
        if (!devices && has_gpu_driver(environment))
            return Error{devices.error().code,
                         cat("--nproc-per-node: this node has an NVIDIA driver, but ", devices.error().context,
                             "; write the number of workers, or cpu for one on each CPU")};
        if (!devices)
            why = devices.error().context;
        else
            gpus = visible_gpu_count(*devices, visible);
        if (devices && !devices->empty() && gpus == 0)
            why = cat(devices->size(), " GPUs were found, but CUDA_VISIBLE_DEVICES='", visible.value_or(""),
                      "' selects none");
    }
    const auto others = gpus == 0 && config.worker_count != WorkerCount::cpu ? uncounted_accelerator() : std::string{};
    if (!others.empty()) why += cat(" (", others, " was found, but only NVIDIA GPUs can be counted)");
    if (config.worker_count == WorkerCount::automatic && !others.empty())
        log(LogLevel::warning, "--nproc-per-node=auto starts one worker for each CPU: ", why,
            "; write the number of accelerators with --nproc-per-node");
    if (config.worker_count == WorkerCount::gpu && gpus == 0)
        return Error{Errc::not_found,
                     cat("--nproc-per-node: got 'gpu', but ", why, "; write a number, or auto to use the CPUs",
                         lookup(environment, "SLURM_STEP_ID") && !lookup(environment, "SLURM_GPUS_ON_NODE")
                             ? "; Slurm gave this step no GPUs: write srun --gpus-per-node N"
                             : "")};
    config.workers_per_node = gpus != 0 ? gpus : usable_cpu_count();
    config.worker_count = WorkerCount::given;
    return {};
}

std::string single_worker_hint(const LaunchConfig& config, const Environment& environment) {
    if (config.workers_per_node != 1 || config.worker_count != WorkerCount::given) return {};
    const auto gpus = apparent_gpu_count(lookup(environment, "CUDA_VISIBLE_DEVICES"));
    if (gpus < 2) return {};
    return cat("one worker on a node with ", gpus, " GPUs: write --nproc-per-node=auto for one worker per GPU");
}

namespace {

bool is_own_address(const std::string& address) {
    const auto all = list_own_addresses();
    return is_loopback(address) ||
           std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.address.numeric() == address; });
}

std::string lower_case(std::string text) {
    for (char& c : text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
}

/// True if `host` is this host's name with or without its domain.
bool has_own_label(const std::string& host) {
    const auto asked = lower_case(host);
    const auto own = lower_case(host_name());
    return asked.starts_with(own + ".") || own.starts_with(asked + ".");
}

std::string local_ranks_here(std::uint32_t workers) {
    return workers == 1 ? "this node has only local rank 0" : cat("this node has local ranks 0 to ", workers - 1);
}

}  // namespace

bool is_own_name(const std::string& host) {
    return is_loopback(host) || lower_case(host) == lower_case(host_name());
}

void warn_of_alias(const LaunchConfig& config, const std::vector<std::string>& addresses) {
    const auto& host = config.endpoint.host;
    const bool only_loopback = !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), is_loopback);
    if (config.backend != Backend::c10d || config.nodes_max < 2 || !only_loopback || is_own_name(host) ||
        has_own_label(host))
        return;
    log(LogLevel::warning, "the name '", host, "' of --rdzv-endpoint is ", addresses.front(),
        " here, so this node hosts the rendezvous, but its own name is '", host_name(),
        "'. If that is another machine, correct /etc/hosts on this one, or write an address");
}

bool is_own_host(const std::string& host, const std::vector<std::string>& addresses) {
    if (is_own_name(host) || std::any_of(addresses.begin(), addresses.end(), is_own_address)) return true;
    if (!addresses.empty()) return false;
    return has_own_label(host);  // the name has no address
}

std::vector<std::string> absent_rank_hints(const LaunchConfig& config) {
    const auto workers = config.workers_per_node;
    std::vector<std::string> hints;
    const auto look_at = [&](const char* option, const StreamChoice& choice) {
        const auto& masks = choice.by_local_rank;
        const bool in_vain =
            std::all_of(masks.begin(), masks.end(), [&](const auto& one) { return one.first >= workers; });
        if (!masks.empty() && in_vain) hints.push_back(cat(option, " has no effect: ", local_ranks_here(workers)));
    };
    look_at("--redirects", config.redirects);
    look_at("--tee", config.tee);
    const auto& shown = config.local_ranks_filter;
    const bool in_vain = std::all_of(shown.begin(), shown.end(), [&](auto rank) { return rank >= workers; });
    if (!shown.empty() && in_vain)
        hints.push_back(cat("--local-ranks-filter hides the output of all workers here: ", local_ranks_here(workers)));
    return hints;
}

}  // namespace muster::launcher
