#include "launcher/scheduler/scheduler_defaults.h"

#include <algorithm>
#include <array>

#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

bool is_given(const GivenValue& given, std::string_view option) {
    return given(option).has_value();
}

/// The user has chosen a meeting place, or that there is none.
bool meets_elsewhere(const GivenValue& given) {
    constexpr std::array places{"rdzv-endpoint", "master-addr", "master-port"};
    const auto standalone = given("standalone");
    const auto nodes = given("nnodes");
    // etcd's members are none of the step's hosts, as far as anybody here knows.
    if (given("rdzv-backend").value_or("").starts_with("etcd")) return true;
    return std::any_of(places.begin(), places.end(), [&](auto option) { return is_given(given, option); }) ||
           (standalone && *standalone != "0") || nodes == "1" || nodes == "1:1";
}

/// Where the user says how many workers there are to be, they may do without.
std::optional<Error> lacks_gpus(const SlurmTask& task, const GivenValue& given) {
    const auto here = task.gpu_count.value_or(0);
    if (is_given(given, "nproc-per-node") || here >= task.gpus_asked_for) return std::nullopt;
    return Error{Errc::invalid_argument,
                 cat("SLURM_GPUS_PER_NODE: ", task.gpus_asked_for,
                     " GPUs were asked for on each node, but this task on ", task.hosts[task.host_number], " has ",
                     here, "; write srun --ntasks-per-node=1 --gpus-per-node=", task.gpus_asked_for,
                     " muster ... without --gpus-per-task, --gpu-bind or --gres=none, or --nproc-per-node N")};
}

void add_worker_count(const SlurmTask& task, const GivenValue& given, SchedulerDefaults& to) {
    if (is_given(given, "nproc-per-node")) return;
    if (task.gpu_count.value_or(0) > 0) {
        to.values.push_back({"nproc-per-node", "SLURM_GPUS_ON_NODE", cat(*task.gpu_count)});
    } else if (task.host_number == 0) {
        to.notes.push_back(
            "Slurm has given this step no GPUs: one worker on each node; write --nproc-per-node N for more, or "
            "srun --gpus-per-node N");
    }
}

SchedulerDefaults of_slurm(const SlurmTask& task, const GivenValue& given) {
    SchedulerDefaults defaults;
    if (task.task_on_host > 0) {
        defaults.nothing_to_do =
            cat("task ", task.task_on_host, " on ", task.hosts[task.host_number],
                " has nothing to do: one muster on each host starts its workers; write srun --ntasks-per-node=1, and "
                "--nproc-per-node for the number of workers");
        return defaults;
    }
    add_worker_count(task, given, defaults);
    if (task.hosts_elsewhere > 0 && task.host_number == 0)
        defaults.notes.push_back(cat("this step leaves out ", task.hosts_elsewhere,
                                     " hosts of the heterogeneous job: write srun --het-group=0,1,... with all of its "
                                     "components to use them too"));
    if (task.hosts.size() == 1) return defaults;
    const auto offer = [&](std::string_view option, std::string source, std::string value) {
        if (!is_given(given, option)) defaults.values.push_back({option, std::move(source), std::move(value)});
    };
    offer("nnodes", "SLURM_STEP_NODELIST", cat(task.hosts.size()));
    offer("rdzv-backend", "SLURM_STEP_ID", "c10d");
    offer("rdzv-endpoint", "SLURM_STEP_NODELIST", cat(task.hosts.front(), ":", task.port));
    offer("rdzv-id", "SLURM_JOB_ID", task.job);
    offer("node-rank", "SLURM_NODEID", cat(task.host_number));
    defaults.is_host = task.host_number == 0;
    return defaults;
}

Error no_task(const Environment& environment) {
    const auto hosts = slurm_hosts_without_task(environment);
    return {Errc::invalid_argument,
            cat("--from: got 'slurm', but this is no task of a Slurm step (SLURM_STEP_ID is ",
                lookup(environment, "SLURM_STEP_ID") ? "the batch script's or a shell's" : "not set", "); write ",
                hosts > 0 ? "srun --ntasks-per-node=1 muster ..." : "salloc or sbatch, and within it srun muster ...")};
}

}  // namespace

Result<SchedulerDefaults> scheduler_defaults(const Environment& environment, const GivenValue& given) {
    const auto from = given("from").value_or("auto");
    if (from == "none") return SchedulerDefaults{};
    if (is_slurm_task(environment)) {
        SchedulerDefaults defaults;
        // What --signal=USR1 sends. Who says what to do with signals has their own plan.
        const bool plain = !is_given(given, "preemption-signal") && !is_given(given, "signals-to-handle");
        if (!meets_elsewhere(given)) {
            const auto task = slurm_task(environment);
            if (!task) return task.error();
            if (auto lacking = lacks_gpus(*task, given); lacking && task->task_on_host == 0) return *lacking;
            defaults = of_slurm(*task, given);
        }
        if (plain) defaults.values.push_back({"preemption-signal", "SLURM_JOB_ID", "USR1"});
        return defaults;
    }
    if (from == "slurm") return no_task(environment);
    SchedulerDefaults defaults;
    if (const auto hosts = slurm_hosts_without_task(environment); hosts > 1 && !meets_elsewhere(given))
        defaults.notes.push_back(cat("Slurm has given this job ", hosts,
                                     " hosts, but muster was started on this one alone: write srun "
                                     "--ntasks-per-node=1 muster ... to use them all"));
    return defaults;
}

}  // namespace muster::launcher
