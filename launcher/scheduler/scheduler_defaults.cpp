#include "launcher/scheduler/scheduler_defaults.h"

#include "launcher/scheduler/kubernetes_pod.h"
#include "launcher/scheduler/mpi_process.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

bool is_given(const GivenValue& given, std::string_view option) {
    return given(option).has_value();
}

/// How far the user has given the endpoint.
enum class Place {
    open,   ///< Not given.
    named,  ///< An endpoint is given.
    fixed,  ///< torchrun's static rendezvous is given, with all its options.
};
Place place_of(const GivenValue& given) {
    if (is_given(given, "master-addr") || is_given(given, "master-port")) return Place::fixed;
    // The members of etcd are not assumed to be hosts of the step.
    const bool is_etcd = given("rdzv-backend").value_or("").starts_with("etcd");
    return is_etcd || is_given(given, "rdzv-endpoint") ? Place::named : Place::open;
}

/// One node, or one job on each node.
bool meets_nobody(const GivenValue& given) {
    const auto standalone = given("standalone");
    const auto nodes = given("nnodes");
    return (standalone && *standalone != "0") || nodes == "1" || nodes == "1:1";
}

class Offers {
  public:
    Offers(const GivenValue& given, SchedulerDefaults& to) : given_(given), to_(to) {}
    void operator()(std::string_view option, std::string_view source, std::string value) const {
        if (!is_given(given_, option)) to_.values.push_back({option, std::string(source), std::move(value)});
    }

  private:
    const GivenValue& given_;
    SchedulerDefaults& to_;
};

/// With an explicit --nproc-per-node, workers may run without GPUs.
std::optional<Error> lacks_gpus(const SlurmTask& task, const GivenValue& given) {
    const auto here = task.gpu_count.value_or(0);
    if (is_given(given, "nproc-per-node") || here >= task.gpus_asked_for) return std::nullopt;
    return Error{Errc::invalid_argument,
                 cat("SLURM_GPUS_PER_NODE: ", task.gpus_asked_for, " GPUs per node were requested, but this task on ",
                     task.hosts[task.host_number], " has ", here,
                     "; write srun --ntasks-per-node=1 --gpus-per-node=", task.gpus_asked_for,
                     " muster ... without --gpus-per-task, --gpu-bind or --gres=none, or --nproc-per-node N")};
}

void add_worker_count(const SlurmTask& task, const GivenValue& given, SchedulerDefaults& to) {
    if (is_given(given, "nproc-per-node")) return;
    if (task.gpu_count.value_or(0) > 0) {
        to.values.push_back({"nproc-per-node", "SLURM_GPUS_ON_NODE", cat(*task.gpu_count)});
    } else if (task.host_number == 0) {
        to.notes.push_back(
            "Slurm gave this step no GPUs: starting one worker on each node; write --nproc-per-node N for more, or "
            "srun --gpus-per-node N");
    }
}

SchedulerDefaults of_task(const SlurmTask& task, const GivenValue& given) {
    SchedulerDefaults defaults;
    if (task.task_on_host > 0) {
        defaults.nothing_to_do = cat("task ", task.task_on_host, " on ", task.hosts[task.host_number],
                                     " exits: one muster on each host starts all workers; write srun "
                                     "--ntasks-per-node=1, and --nproc-per-node for the number of workers");
        return defaults;
    }
    add_worker_count(task, given, defaults);
    if (const auto here = task.gpu_count.value_or(0); here < task.gpus_on_host && here > 0 && task.host_number == 0)
        defaults.notes.push_back(cat(task.gpus_on_host - here, " of the step's ", task.gpus_on_host,
                                     " GPUs on this node are unused: Slurm gives this task ", here,
                                     " of them, and other tasks start no workers; write srun --ntasks-per-node=1 "
                                     "--gpus-per-node=",
                                     task.gpus_on_host, " muster ... without --gpus-per-task and --gpu-bind"));
    if (task.hosts_elsewhere > 0 && task.host_number == 0)
        defaults.notes.push_back(
            cat("this step does not use ", task.hosts_elsewhere,
                " hosts of the heterogeneous job; to use them, write srun --het-group=0,1,... with all components"));
    if (task.hosts.size() == 1) return defaults;
    const Offers offer(given, defaults);
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
            cat("--from: got 'slurm', but this is not a task of a Slurm step (SLURM_STEP_ID is ",
                lookup(environment, "SLURM_STEP_ID") ? "the batch script's or a shell's" : "not set", "); write ",
                hosts > 0 ? "srun --ntasks-per-node=1 muster ..." : "salloc or sbatch, and in it srun muster ...")};
}

Result<SchedulerDefaults> of_mpi(const Environment& environment, const GivenValue& given) {
    SchedulerDefaults defaults;
    if (meets_nobody(given)) return defaults;
    const auto place = place_of(given);
    // Everything is given, as for torchrun: several processes on a host are intended.
    if (place != Place::open && is_given(given, "nnodes")) return defaults;
    const auto process = MUSTER_TRY(mpi_process(environment));
    if (process.rank_on_host > 0) {
        defaults.nothing_to_do =
            "this process exits: mpirun started another muster on this host, which starts the workers; write mpirun "
            "-npernode 1 (MPICH: -ppn 1), and --nproc-per-node for the number of workers";
        return defaults;
    }
    if (process.is_bound && process.rank == 0)
        defaults.notes.push_back(
            "mpirun bound muster, and thus all its workers, to some of the CPUs; write mpirun --bind-to none, and "
            "muster --numa-binding to bind workers");
    if (place == Place::open && process.host_count > 1) {
        if (process.mpirun_addresses.empty())
            return Error{Errc::invalid_argument,
                         cat("--rdzv-endpoint is missing: this is process ", process.rank,
                             " of mpirun, which does not report the host of the first one; write --rdzv-endpoint "
                             "HOST:PORT with one of the hosts, or --from=none if each process runs its own job")};
        defaults.is_host = process.rank == 0;
        if (*defaults.is_host) defaults.own_addresses = process.mpirun_addresses;
    }
    const Offers offer(given, defaults);
    offer("nnodes", "mpirun", cat(process.host_count));
    if (process.host_count == 1) return defaults;
    if (place != Place::fixed) offer("rdzv-backend", "mpirun", "c10d");
    if (place == Place::open)
        offer("rdzv-endpoint", "OMPI_MCA_orte_hnp_uri",
              describe(Endpoint{join(process.mpirun_addresses, ","), process.port}));
    // A musterd would treat two jobs with one id as one job.
    if (process.job.empty() && place != Place::fixed && !is_given(given, "rdzv-id"))
        return Error{Errc::invalid_argument,
                     "--rdzv-id is missing: this mpirun reports no job id; write --rdzv-id NAME, the same for all its "
                     "processes and different for each job"};
    if (!process.job.empty()) offer("rdzv-id", "mpirun", process.job);
    if (process.one_on_each) offer("node-rank", "mpirun", cat(process.rank));
    return defaults;
}

bool is_all_given(const GivenValue& given) {
    constexpr std::array all{"nnodes", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "node-rank"};
    return std::ranges::all_of(all, [&](auto option) { return is_given(given, option); });
}

Error nameless_pod(const Environment& environment, std::uint32_t index) {
    return {Errc::invalid_argument, cat("HOSTNAME: got '", value_or_empty(environment, "HOSTNAME"), "', but pod ",
                                        index, " of an indexed job should have the host name JOB-", index,
                                        "; write --rdzv-endpoint HOST:PORT and --rdzv-id, or --from=none")};
}

Result<SchedulerDefaults> of_kubernetes(const Environment& environment, const GivenValue& given,
                                        std::string_view hosts_file) {
    SchedulerDefaults defaults;
    if (meets_nobody(given)) return defaults;
    const auto place = place_of(given);
    const auto pod = kubernetes_pod(environment, hosts_file);
    if (!is_given(given, "nnodes")) {
        const std::string more =
            "pods of an indexed job do not know their number; write --nnodes N, or set MUSTER_NNODES in the pod "
            "template to the job's completions";
        if (given("from") == "kubernetes") return Error{Errc::invalid_argument, cat("--nnodes is missing: ", more)};
        if (place == Place::open) defaults.notes.push_back(cat("this pod runs its own job; ", more));
        return defaults;
    }
    if (place == Place::fixed || is_all_given(given)) return defaults;
    if (!pod) return pod.error();
    if (pod->job.empty() && (place == Place::open || !is_given(given, "rdzv-id")))
        return nameless_pod(environment, pod->index);
    const Offers offer(given, defaults);
    if (place == Place::open) {
        if (pod->first_name.empty())
            return Error{
                Errc::invalid_argument,
                cat("--rdzv-endpoint is missing: pod ", pod->index, " of ", pod->job,
                    " has no name with a domain in /etc/hosts, so the others cannot look it up; set subdomain in "
                    "the pod's template to the name of a headless Service (scripts/kubernetes/job.yaml)")};
        offer("rdzv-endpoint", "JOB_COMPLETION_INDEX", pod->first_name);
        defaults.is_host = pod->index == 0;
    }
    offer("rdzv-backend", "JOB_COMPLETION_INDEX", "c10d");
    offer("rdzv-id", "JOB_COMPLETION_INDEX", pod->job);
    offer("node-rank", "JOB_COMPLETION_INDEX", cat(pod->index));
    return defaults;
}

Result<SchedulerDefaults> of_slurm(const Environment& environment, const GivenValue& given) {
    SchedulerDefaults defaults;
    // The signal of --signal=USR1. Explicit signal options disable this default.
    const bool plain = !is_given(given, "preemption-signal") && !is_given(given, "signals-to-handle");
    if (place_of(given) == Place::open && !meets_nobody(given)) {
        const auto task = MUSTER_TRY(slurm_task(environment));
        if (auto lacking = lacks_gpus(task, given); lacking && task.task_on_host == 0) return *lacking;
        defaults = of_task(task, given);
    }
    if (plain) defaults.values.push_back({"preemption-signal", "SLURM_JOB_ID", "USR1"});
    return defaults;
}

/// The error if --from names a scheduler that did not start this process.
Error not_there(std::string_view from, const Environment& environment) {
    if (from == "slurm") return no_task(environment);
    if (from == "mpi")
        return {Errc::invalid_argument,
                "--from: got 'mpi', but this is not one of several processes of mpirun (see OMPI_COMM_WORLD_SIZE and "
                "PMI_SIZE); write mpirun -npernode 1 muster ..."};
    return {Errc::invalid_argument,
            "--from: got 'kubernetes', but this is not a pod of an indexed job (JOB_COMPLETION_INDEX is not set); set "
            "completionMode: Indexed in the job"};
}

}  // namespace

Result<SchedulerDefaults> scheduler_defaults(const Environment& environment, const GivenValue& given,
                                             std::string_view hosts_file) {
    const auto from = given("from").value_or("auto");
    const auto is_asked_for = [&](std::string_view place) { return from == "auto" || from == place; };
    if (is_asked_for("slurm") && is_slurm_task(environment)) return of_slurm(environment, given);
    if (is_asked_for("mpi") && is_mpi_process(environment)) return of_mpi(environment, given);
    if (is_asked_for("kubernetes") && is_kubernetes_pod(environment))
        return of_kubernetes(environment, given, hosts_file);
    if (from == "slurm" || from == "mpi" || from == "kubernetes") return not_there(from, environment);
    SchedulerDefaults defaults;
    if (from == "none") return defaults;
    if (const auto hosts = slurm_hosts_without_task(environment);
        hosts > 1 && place_of(given) == Place::open && !meets_nobody(given))
        defaults.notes.push_back(cat(
            "Slurm gave this job ", hosts,
            " hosts, but muster was started only on this one; to use all, write srun --ntasks-per-node=1 muster ..."));
    return defaults;
}

}  // namespace muster::launcher
