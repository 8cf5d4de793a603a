#include "launcher/scheduler/slurm_task.h"

#include <algorithm>

#include "launcher/config/option_values.h"
#include "rendezvous/base/host_list.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

/// Step ids from here on are Slurm's own: the batch script, an interactive shell, the external step.
constexpr std::int64_t special_steps = 0xffff'fff0;
constexpr std::int64_t number_max = 0xffff'ffff;

/// Below the kernel's ephemeral ports. Job ids are consecutive, also in arrays, so any 1000 concurrent jobs on a host
/// get different ports.
constexpr std::int64_t first_port = 20'480;
constexpr std::int64_t port_count = 12'288;
constexpr std::int64_t steps_of_a_job = 11;

std::optional<std::int64_t> number(const Environment& environment, std::string_view name) {
    return whole_number(value_or_empty(environment, name), 0, number_max);
}

Error unreadable(std::string_view variable, std::string_view value, std::string_view why) {
    return {Errc::invalid_argument,
            cat(variable, ": got '", value, "'; ", why,
                "; write --nnodes, --rdzv-backend=c10d and --rdzv-endpoint HOST:PORT, or --from=none")};
}

constexpr std::string_view host_variables[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"};

Result<std::vector<std::string>> hosts_of(const Environment& environment) {
    for (const auto variable : host_variables) {
        const auto text = lookup(environment, variable);
        if (!text) continue;
        auto hosts = parse_host_list(*text);
        if (!hosts) return unreadable(variable, *text, cat("it is not a valid list of hosts ", hosts.error().context));
        return hosts;
    }
    return unreadable("SLURM_STEP_NODELIST", "", "accepted is the list of the step's hosts");
}

std::uint16_t port_of(const Environment& environment, std::int64_t job, std::int64_t step) {
    const auto reserved = value_or_empty(environment, "SLURM_STEP_RESV_PORTS");
    if (const auto port = whole_number(reserved.substr(0, reserved.find_first_of(",-")), 1, 65'535))
        return static_cast<std::uint16_t>(*port);
    return static_cast<std::uint16_t>(first_port + (job * steps_of_a_job + step) % port_count);
}

/// Slurm counts the allocation's GPUs on this host. If it binds a task to some of them, CUDA_VISIBLE_DEVICES has these.
std::optional<std::uint32_t> gpus_of(const Environment& environment) {
    const bool asked_for = lookup(environment, "SLURM_GPUS_ON_NODE") || lookup(environment, "SLURM_STEP_GPUS") ||
                           lookup(environment, "SLURM_JOB_GPUS");
    if (!asked_for) return std::nullopt;
    const auto visible = lookup(environment, "CUDA_VISIBLE_DEVICES");
    const auto on_host = number(environment, "SLURM_GPUS_ON_NODE");
    if (!visible) return static_cast<std::uint32_t>(on_host.value_or(0));
    const auto shown = visible->empty() ? 0 : static_cast<std::uint32_t>(split(*visible, ',').size());
    return on_host ? std::min(shown, static_cast<std::uint32_t>(*on_host)) : shown;
}

/// "8", "a100:8" or "a100:4,h100:4".
std::uint32_t gpu_count_of(std::string_view text) {
    std::int64_t sum = 0;
    for (const auto kind : split(text, ',')) {
        const auto colon = kind.rfind(':');
        const auto count = whole_number(colon == std::string_view::npos ? kind : kind.substr(colon + 1), 0, 4096);
        if (!text.empty()) sum += count.value_or(1);  // a type without a number means 1
    }
    return static_cast<std::uint32_t>(sum);
}

/// The value of `host` in "8(x3),4", which is 8, 8, 8, 4. 0 if it is missing or invalid.
std::uint32_t count_on(std::string_view counts, std::uint32_t host) {
    std::int64_t passed = 0;
    for (const auto part : split(counts, ',')) {
        const auto times_at = part.find("(x");
        const auto value = whole_number(part.substr(0, times_at), 0, number_max);
        std::optional<std::int64_t> times = 1;
        if (times_at != std::string_view::npos) {
            const auto text = part.substr(times_at + 2);
            times = whole_number(text.substr(0, text.rfind(')')), 1, number_max);
            if (!text.ends_with(')')) return 0;
        }
        if (!value || !times) return 0;
        passed += *times;
        if (host < passed) return static_cast<std::uint32_t>(*value);
    }
    return 0;
}

/// The count of SLURM_GPUS_ON_NODE, or the sum over all tasks if each has its own GPUs.
std::uint32_t gpus_on(const Environment& environment, std::uint32_t host) {
    auto tasks = count_on(value_or_empty(environment, "SLURM_STEP_TASKS_PER_NODE"), host);
    if (tasks == 0) tasks = count_on(value_or_empty(environment, "SLURM_TASKS_PER_NODE"), host);
    const auto each = gpu_count_of(value_or_empty(environment, "SLURM_GPUS_PER_TASK"));
    const auto told = static_cast<std::uint32_t>(number(environment, "SLURM_GPUS_ON_NODE").value_or(0));
    return std::max(told, each * tasks);
}

/// The index among the hosts. In a step over several components of a heterogeneous job the list is sorted, but
/// SLURM_NODEID counts component by component. So this host's name decides if it is known.
std::optional<std::uint32_t> place_of(const Environment& environment, const std::vector<std::string>& hosts) {
    const auto name = value_or_empty(environment, "SLURMD_NODENAME");
    const auto here = std::ranges::find(hosts, name);
    if (std::ranges::count(hosts, name) == 1) return static_cast<std::uint32_t>(here - hosts.begin());
    const auto number_given = number(environment, "SLURM_NODEID");
    if (!number_given || *number_given >= static_cast<std::int64_t>(hosts.size())) return std::nullopt;
    return static_cast<std::uint32_t>(*number_given);
}

std::uint32_t hosts_elsewhere(const Environment& environment, std::size_t here) {
    const auto component_count = number(environment, "SLURM_HET_SIZE").value_or(0);
    std::int64_t all = 0;
    for (std::int64_t group = 0; group < std::min<std::int64_t>(component_count, 1024); ++group)
        all += number(environment, cat("SLURM_JOB_NUM_NODES_HET_GROUP_", group)).value_or(0);
    return static_cast<std::uint32_t>(std::max<std::int64_t>(all - static_cast<std::int64_t>(here), 0));
}

}  // namespace

bool is_slurm_task(const Environment& environment) {
    const auto step = number(environment, "SLURM_STEP_ID");
    const auto set = [&](std::string_view name) { return lookup(environment, name).has_value(); };
    // Under an mpirun in the allocation, these variables belong to mpirun's helper. (srun --mpi=pmi2 sets PMI_RANK too,
    // but not Hydra's variables tested here.)
    const bool is_mpiruns = set("OMPI_COMM_WORLD_SIZE") || set("MPI_LOCALRANKID") || set("HYDI_CONTROL_FD");
    return step && *step < special_steps && set("SLURM_JOB_ID") && set("SLURM_PROCID") && !set("MUSTER_AGENT_SOCKET") &&
           !is_mpiruns;
}

Result<SlurmTask> slurm_task(const Environment& environment) {
    const auto job = number(environment, "SLURM_JOB_ID");
    const auto step = number(environment, "SLURM_STEP_ID");
    if (!job) return unreadable("SLURM_JOB_ID", value_or_empty(environment, "SLURM_JOB_ID"), "accepted is a number");
    SlurmTask task{
        .hosts = MUSTER_TRY(hosts_of(environment)), .job = cat(*job, ".", *step), .gpu_count = gpus_of(environment)};
    const auto host = place_of(environment, task.hosts);
    if (!host)
        return unreadable("SLURM_NODEID", value_or_empty(environment, "SLURM_NODEID"),
                          cat("accepted is a number below the ", task.hosts.size(), " hosts of the step"));
    task.host_number = *host;
    task.gpus_asked_for = gpu_count_of(value_or_empty(environment, "SLURM_GPUS_PER_NODE"));
    task.gpus_on_host = gpus_on(environment, task.host_number);
    task.hosts_elsewhere = hosts_elsewhere(environment, task.hosts.size());
    task.task_on_host = static_cast<std::uint32_t>(number(environment, "SLURM_LOCALID").value_or(0));
    task.port = port_of(environment, *job, *step);
    const auto restarts = number(environment, "SLURM_RESTART_COUNT").value_or(0);
    if (restarts > 0) task.job += cat("-", restarts);
    return task;
}

std::string slurm_hosts_of_first_task(const Environment& environment) {
    if (!is_slurm_task(environment)) return {};
    const auto task = slurm_task(environment);
    if (!task || task->host_number != 0 || task->task_on_host != 0) return {};
    for (const auto variable : host_variables)
        if (const auto text = lookup(environment, variable)) return std::string(*text);
    return {};
}

std::string slurm_cpu_hint(const Environment& environment, std::uint32_t workers, std::uint32_t usable) {
    if (!is_slurm_task(environment) || usable >= workers) return {};
    const auto task = slurm_task(environment);
    if (!task || task->host_number != 0) return {};
    const auto on_host = std::max(static_cast<std::uint32_t>(number(environment, "SLURM_CPUS_ON_NODE").value_or(0)),
                                  count_on(value_or_empty(environment, "SLURM_JOB_CPUS_PER_NODE"), 0));
    if (on_host <= usable) return {};
    return cat("the ", workers, " workers share ", usable, usable == 1 ? " CPU" : " CPUs", " of the ", on_host,
               " that Slurm gave the job on this node: since Slurm 22.05 srun does not inherit --cpus-per-task from "
               "sbatch; write srun --cpus-per-task=",
               on_host, ", or export SRUN_CPUS_PER_TASK in the batch script");
}

std::uint32_t slurm_hosts_without_task(const Environment& environment) {
    if (!lookup(environment, "SLURM_JOB_ID") || is_slurm_task(environment) ||
        lookup(environment, "MUSTER_AGENT_SOCKET"))
        return 0;
    for (const std::string_view variable : {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"})
        if (const auto count = number(environment, variable)) return static_cast<std::uint32_t>(*count);
    return 0;
}

}  // namespace muster::launcher
