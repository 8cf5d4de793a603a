// A task of srun's with few flags or none: what the launcher makes of Slurm's variables.
#include "launcher/scheduler/scheduler_defaults.h"

#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/scheduler/parsed.h"

namespace muster::launcher {

namespace {

/// Task 2 of four, on hosts gpu07, gpu08, gpu09 and gpu10, of step 1 of job 4711.
Environment in_step(const Environment& more = {}) {
    Environment environment{{"SLURM_JOB_ID", "4711"},     {"SLURM_STEP_ID", "1"}, {"SLURM_PROCID", "2"},
                            {"SLURM_NODEID", "2"},        {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", "gpu[07-10]"},
                            {"SLURM_STEP_NUM_NODES", "4"}};
    for (const auto& [name, value] : more) environment[name] = value;
    return environment;
}

}  // namespace

TEST_CASE("a task of srun without flags joins the job of its step") {
    const auto launch = launch_of({"train.py"}, in_step());
    const auto& config = launch.config;
    CHECK((config.nodes_min == 4 && config.nodes_max == 4));
    CHECK(config.backend == Backend::c10d);
    CHECK_FALSE(config.standalone);
    CHECK(config.endpoint.host == "gpu07");
    CHECK(config.endpoint.port == 20'480 + (4711 * 11 + 1) % 12'288);
    CHECK(config.job == "4711.1");
    CHECK(config.node_rank == 2);
    CHECK(config.is_host == false);
    CHECK(config.workers_per_node == 1);
    CHECK(config.preemption_signal == 10);
    CHECK(launch_of({"train.py"}, in_step({{"SLURM_NODEID", "0"}})).config.is_host == true);
}

TEST_CASE("the step's GPUs are its workers, and no GPUs are said aloud, once") {
    CHECK(launch_of({"x"}, in_step({{"SLURM_GPUS_ON_NODE", "8"}})).config.workers_per_node == 8);
    const auto bound = in_step({{"SLURM_GPUS_ON_NODE", "8"}, {"CUDA_VISIBLE_DEVICES", "0,3"}});
    CHECK(launch_of({"x"}, bound).config.workers_per_node == 2);
    CHECK(launch_of({"--nproc-per-node=4", "x"}, bound).config.workers_per_node == 4);
    CHECK(says(launch_of({"x"}, in_step({{"SLURM_NODEID", "0"}})), "no GPUs: starting one worker on each node"));
    CHECK_FALSE(says(launch_of({"x"}, in_step()), "no GPUs"));
}

TEST_CASE("GPUs that Slurm has bound to tasks which do nothing are told of, once") {
    const auto first = [](const Environment& more) {
        auto environment =
            in_step({{"SLURM_NODEID", "0"}, {"SLURM_GPUS_PER_TASK", "1"}, {"CUDA_VISIBLE_DEVICES", "0"}});
        for (const auto& [name, value] : more) environment[name] = value;
        return launch_of({"x"}, environment);
    };
    const auto told = first({{"SLURM_GPUS_ON_NODE", "8"}});
    CHECK(told.config.workers_per_node == 1);
    CHECK(says(told,
               "7 of the step's 8 GPUs on this node are unused: Slurm gives this task 1 of them, and other tasks "
               "start no workers; write srun --ntasks-per-node=1 --gpus-per-node=8 muster"));
    // Where Slurm counts this task's alone.
    CHECK(says(first({{"SLURM_GPUS_ON_NODE", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "4(x2),2"}}), "3 of the step's 4"));
    CHECK(says(first({{"SLURM_GPUS_ON_NODE", "1"}, {"SLURM_TASKS_PER_NODE", "2(x4)"}}), "1 of the step's 2 GPUs"));
    for (const auto* one : {"1(x4)", "", "x(x2)", "2(x", "2(x0)"})
        CHECK_FALSE(says(first({{"SLURM_GPUS_ON_NODE", "1"}, {"SLURM_STEP_TASKS_PER_NODE", one}}), "unused"));
    CHECK_FALSE(says(first({{"SLURM_GPUS_ON_NODE", "8"}, {"SLURM_NODEID", "1"}}), "unused"));
}

TEST_CASE("workers that share fewer CPUs than the job has there are told of, once") {
    const auto hint = [](const Environment& more, std::uint32_t workers, std::uint32_t usable) {
        return slurm_cpu_hint(in_step(more), workers, usable);
    };
    const Environment first{{"SLURM_NODEID", "0"}, {"SLURM_CPUS_ON_NODE", "1"}, {"SLURM_JOB_CPUS_PER_NODE", "64(x4)"}};
    CHECK(hint(first, 8, 1).starts_with("the 8 workers share 1 CPU of the 64 that Slurm gave the job on this node: "));
    CHECK(hint(first, 8, 1).find("write srun --cpus-per-task=64, or export SRUN_CPUS_PER_TASK") != std::string::npos);
    CHECK(hint({{"SLURM_NODEID", "0"}, {"SLURM_CPUS_ON_NODE", "16"}}, 8, 2).find("2 CPUs of the 16") !=
          std::string::npos);
    CHECK(hint(first, 8, 8).empty());
    CHECK(hint({{"SLURM_NODEID", "0"}, {"SLURM_CPUS_ON_NODE", "2"}}, 8, 2).empty());
    CHECK(hint({{"SLURM_CPUS_ON_NODE", "64"}}, 8, 1).empty());  // node 2
    CHECK(slurm_cpu_hint({}, 8, 1).empty());
}

TEST_CASE("GPUs that were asked for and are not there are one line, unless the number of workers is given") {
    const auto lacking =
        in_step({{"SLURM_GPUS_PER_NODE", "a100:8"}, {"SLURM_GPUS_ON_NODE", "8"}, {"CUDA_VISIBLE_DEVICES", "0"}});
    CHECK(complaint_of({"x"}, lacking) ==
          "muster: SLURM_GPUS_PER_NODE: 8 GPUs per node were requested, but this task on gpu09 has 1; write srun "
          "--ntasks-per-node=1 --gpus-per-node=8 muster ... without --gpus-per-task, --gpu-bind or --gres=none, or "
          "--nproc-per-node N\n");
    CHECK(complaint_of({"x"}, in_step({{"SLURM_GPUS_PER_NODE", "2"}})).find("has 0") != std::string::npos);
    CHECK(launch_of({"--nproc-per-node=3", "x"}, lacking).config.workers_per_node == 3);
    CHECK(launch_of({"x"}, in_step({{"SLURM_GPUS_PER_NODE", "0"}})).config.workers_per_node == 1);
    const auto mixed = in_step({{"SLURM_GPUS_PER_NODE", "a100:1,h100"}, {"SLURM_GPUS_ON_NODE", "2"}});
    CHECK(launch_of({"x"}, mixed).config.workers_per_node == 2);
}

TEST_CASE("a step over the components of a heterogeneous job is one job, in the order of the list") {
    // Slurm sorts the list, and numbers the hosts component by component.
    const auto third = in_step({{"SLURM_HET_SIZE", "2"},
                                {"SLURM_NODEID", "0"},
                                {"SLURMD_NODENAME", "gpu10"},
                                {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"},
                                {"SLURM_JOB_NUM_NODES_HET_GROUP_1", "3"}});
    CHECK(launch_of({"x"}, third).config.node_rank == 3);
    CHECK(launch_of({"x"}, third).config.is_host == false);
    CHECK(launch_of({"x"}, third).config.nodes_min == 4);
    auto first = third;
    first["SLURMD_NODENAME"] = "gpu07";
    CHECK(launch_of({"x"}, first).config.is_host == true);
    CHECK_FALSE(says(launch_of({"x"}, first), "does not use"));
    first["SLURM_JOB_NUM_NODES_HET_GROUP_0"] = "5";
    CHECK(says(launch_of({"x"}, first),
               "does not use 4 hosts of the heterogeneous job; to use them, write srun --het-group=0,1"));
    // Two components on one host: its name alone does not tell them apart.
    const auto twice = in_step({{"SLURM_STEP_NODELIST", "a,a"}, {"SLURM_NODEID", "1"}, {"SLURMD_NODENAME", "a"}});
    CHECK(launch_of({"x"}, twice).config.node_rank == 1);
}

TEST_CASE("what is given beats Slurm, each option by itself") {
    CHECK(launch_of({"--nnodes=2:4", "x"}, in_step()).config.nodes_min == 2);
    CHECK(launch_of({"--nnodes=2:4", "x"}, in_step()).config.endpoint.host == "gpu07");
    CHECK(launch_of({"--rdzv-id=mine", "x"}, in_step()).config.job == "mine");
    CHECK(launch_of({"x"}, in_step({{"MUSTER_RDZV_ID", "theirs"}})).config.job == "theirs");
    CHECK(launch_of({"--preemption-signal=USR2", "x"}, in_step()).config.preemption_signal == 12);
    CHECK(launch_of({"--rdzv-conf=is_host=1", "x"}, in_step()).config.is_host == true);
    // A meeting place of their own, or none.
    const auto own = launch_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=other:1234", "x"}, in_step());
    CHECK((own.config.endpoint.host == "other" && own.config.node_rank == -1 && !own.config.is_host));
    // Several agents on a host, and flags for all of it, as with torchrun: one worker each, and no step to read.
    const auto all = launch_of({"--nnodes=8", "--node-rank=5", "--master-addr=a", "--master-port=29500", "x"},
                               in_step({{"SLURM_GPUS_ON_NODE", "8"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "77"}}));
    CHECK((all.config.workers_per_node == 1 && all.config.node_rank == 5 && all.warnings.empty()));
    CHECK(launch_of({"--signals-to-handle=SIGTERM,SIGUSR1", "x"}, in_step()).config.preemption_signal == 0);
    for (const std::string alone : {"--standalone", "--nnodes=1"})
        CHECK(launch_of({alone, "x"}, in_step()).config.standalone);
    CHECK(launch_of({"--from=none", "x"}, in_step()).config.standalone);
}

TEST_CASE("one agent for each host: further tasks have nothing to do, and say so") {
    const auto parsed = parse_options({"x"}, in_step({{"SLURM_LOCALID", "3"}}));
    REQUIRE(std::holds_alternative<NothingToDo>(parsed));
    const auto& line = std::get<NothingToDo>(parsed).line;
    CHECK(line.find("task 3 on gpu09 exits: one muster on each host") != std::string::npos);
    CHECK(line.find("--ntasks-per-node=1") != std::string::npos);
    // Each task a job of its own.
    CHECK(launch_of({"--standalone", "x"}, in_step({{"SLURM_LOCALID", "3"}})).config.standalone);
    // On one host, too.
    const Environment one{{"SLURM_STEP_NODELIST", "gpu07"}, {"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "1"}};
    CHECK(std::holds_alternative<NothingToDo>(parse_options({"x"}, in_step(one))));
}

TEST_CASE("a step of one host needs no meeting place") {
    const auto launch = launch_of(
        {"x"}, in_step({{"SLURM_STEP_NODELIST", "gpu07"}, {"SLURM_NODEID", "0"}, {"SLURM_GPUS_ON_NODE", "2"}}));
    CHECK(launch.config.standalone);
    CHECK(launch.config.workers_per_node == 2);
}

TEST_CASE("jobs side by side and jobs again have other names and ports") {
    const auto again = launch_of({"x"}, in_step({{"SLURM_RESTART_COUNT", "2"}}));
    CHECK(again.config.job == "4711.1-2");
    const auto port = [](const std::string& job, const std::string& step) {
        return launch_of({"x"}, in_step({{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}})).config.endpoint.port;
    };
    CHECK(port("4711", "1") != port("4712", "1"));
    CHECK(port("4711", "1") != port("4711", "2"));
    CHECK((port("4294967295", "4000000000") >= 20'480 && port("4294967295", "4000000000") < 32'768));
    CHECK(launch_of({"x"}, in_step({{"SLURM_STEP_RESV_PORTS", "15003-15004"}})).config.endpoint.port == 15'003);
}

TEST_CASE("outside a task of srun nothing is taken from Slurm, and a lonely muster is told") {
    const Environment batch{{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_PROCID", "0"}};
    const auto launch = launch_of({"x"}, batch);
    CHECK(launch.config.standalone);
    CHECK(says(launch, "Slurm gave this job 4 hosts"));
    CHECK_FALSE(says(launch_of({"--nnodes=1", "x"}, batch), "Slurm"));
    // The shell of salloc is a step of Slurm's own.
    CHECK(launch_of({"x"}, in_step({{"SLURM_STEP_ID", "4294967290"}})).config.standalone);
    // mpirun's, whose remote processes inherit a step of orted's.
    CHECK(launch_of({"x"}, in_step({{"OMPI_COMM_WORLD_SIZE", "4"}})).config.standalone);
    // Hydra's (MPICH, Intel MPI), started by srun within an allocation; but plain srun --mpi=pmi2 has a PMI_RANK too.
    const Environment hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
    CHECK(complaint_of({"x"}, in_step(hydra)).starts_with("muster: --rdzv-endpoint is missing: this is process 1 of"));
    CHECK(launch_of({"x"}, in_step({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})).config.job == "4711.1");
    // A worker's own muster is no task of srun's, though it inherits its variables.
    CHECK(launch_of({"x"}, in_step({{"MUSTER_AGENT_SOCKET", "x"}})).config.standalone);
    CHECK(complaint_of({"--from=slurm", "x"}, {})
              .find("not a task of a Slurm step (SLURM_STEP_ID is not set); write salloc") != std::string::npos);
    CHECK(complaint_of({"--from=slurm", "x"}, batch).find("srun --ntasks-per-node=1") != std::string::npos);
    CHECK(complaint_of({"--from=pbs", "x"}, {}) ==
          "muster: --from: got 'pbs'; accepted is auto, slurm, mpi, kubernetes or none\n");
}

TEST_CASE("variables that do not read are refused with their name and place") {
    CHECK(complaint_of({"x"}, in_step({{"SLURM_STEP_NODELIST", "gpu[07-10"}})) ==
          "muster: SLURM_STEP_NODELIST: got 'gpu[07-10'; it is not a valid list of hosts at character 4: '[' without "
          "']'; write --nnodes, --rdzv-backend=c10d and --rdzv-endpoint HOST:PORT, or "
          "--from=none\n");
    CHECK(complaint_of({"x"}, in_step({{"SLURM_NODEID", "4"}})).find("below the 4 hosts") != std::string::npos);
    CHECK(complaint_of({"x"}, in_step({{"SLURM_JOB_ID", "x"}})).find("SLURM_JOB_ID: got 'x'") != std::string::npos);
}

}  // namespace muster::launcher
