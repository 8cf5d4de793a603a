// Under mpirun and in a pod of an indexed job: what the launcher makes of their variables.
#include "launcher/scheduler/kubernetes_pod.h"
#include "launcher/scheduler/mpi_process.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/scheduler/parsed.h"

namespace muster::launcher {

namespace {

/// Process 1 of three, one on each host, as Open MPI 4.1 says it.
Environment under_mpirun(const Environment& more = {}) {
    Environment environment{
        {"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
        {"OMPI_MCA_ess_base_jobid", "727580673"},
        {"OMPI_MCA_orte_num_nodes", "3"},
        {"OMPI_MCA_orte_hnp_uri", "727580672.0;tcp6://[fd00::2,2001:db8::2]:5073;tcp://192.0.2.2,10.1.0.1:39397"}};
    for (const auto& [name, value] : more) environment[name] = value;
    return environment;
}

/// Pod 2 of the indexed job "train".
Environment in_pod(const Environment& more = {}) {
    Environment environment{{"JOB_COMPLETION_INDEX", "2"}, {"HOSTNAME", "train-2"}, {"MUSTER_NNODES", "4"}};
    for (const auto& [name, value] : more) environment[name] = value;
    return environment;
}
/// Of pod 2 and of pod 0 in one.
constexpr std::string_view hosts_file =
    "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
    "10.244.1.3\ttrain-2.workers.default.svc.cluster.local\ttrain-2\n"
    "10.244.1.1\ttrain-0.workers.default.svc.cluster.local\ttrain-0\n";

Launch launched(const std::vector<std::string>& words, const Environment& environment) {
    return launch_of(words, environment, hosts_file);
}

std::string complaint(const std::vector<std::string>& words, const Environment& environment,
                      std::string_view hosts = hosts_file) {
    return complaint_of(words, environment, hosts);
}

}  // namespace

TEST_CASE("processes of mpirun, one on each host, are one job that meets where mpirun runs") {
    const auto launch = launched({"x"}, under_mpirun());
    const auto& config = launch.config;
    CHECK((config.nodes_min == 3 && config.nodes_max == 3));
    CHECK(config.backend == Backend::c10d);
    CHECK(config.endpoint.host == "192.0.2.2,10.1.0.1,fd00::2,2001:db8::2");
    CHECK(config.more_endpoints.empty());
    CHECK((config.endpoint.port >= 20'480 && config.endpoint.port < 28'672));
    CHECK(config.job == "mpi-727580673");
    CHECK(config.node_rank == 1);
    CHECK(config.is_host == false);
    CHECK(launch.own_addresses.empty());
    const auto first = launched({"x"}, under_mpirun({{"OMPI_COMM_WORLD_RANK", "0"}}));
    CHECK(first.config.is_host == true);
    CHECK(first.own_addresses == std::vector<std::string>{"192.0.2.2", "10.1.0.1", "fd00::2", "2001:db8::2"});
    CHECK(first.config.endpoint == config.endpoint);
    CHECK(launched({"x"}, under_mpirun({{"OMPI_MCA_ess_base_jobid", "9"}})).config.endpoint.port !=
          config.endpoint.port);
}

TEST_CASE("under mpirun an endpoint that is given wins, and the rest comes from mpirun all the same") {
    const auto launch = launched({"--rdzv-endpoint=daemon:1234", "x"}, under_mpirun({{"OMPI_COMM_WORLD_RANK", "0"}}));
    CHECK(launch.config.endpoint.host == "daemon");
    CHECK(launch.config.nodes_min == 3);
    CHECK(launch.config.node_rank == 0);
    CHECK_FALSE(launch.config.is_host);
    CHECK(launch.own_addresses.empty());
    CHECK(launched({"--nnodes=1", "x"}, under_mpirun()).config.standalone);
    CHECK(launched({"--standalone", "x"}, under_mpirun()).config.standalone);
    CHECK(launched({"--from=none", "x"}, under_mpirun()).config.standalone);
    CHECK(launched({"x"}, under_mpirun({{"MUSTER_AGENT_SOCKET", "s"}})).config.standalone);
    CHECK(launched({"x"}, under_mpirun({{"OMPI_COMM_WORLD_SIZE", "1"}})).config.standalone);
    const auto all = launched({"--nnodes=8", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "x"},
                              under_mpirun({{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}));
    CHECK(all.config.nodes_max == 8);
    CHECK(all.config.node_rank == -1);
}

TEST_CASE("more processes of mpirun on a host: one serves it, as far as mpirun tells how many hosts there are") {
    const Environment pairs{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_SIZE", "6"}};
    const auto launch = launched({"x"}, under_mpirun(pairs));
    CHECK(launch.config.nodes_min == 3);
    CHECK(launch.config.node_rank == -1);  // which host is which is not told
    auto second = under_mpirun(pairs);
    second.insert_or_assign("OMPI_COMM_WORLD_LOCAL_RANK", "1");
    CHECK(std::holds_alternative<NothingToDo>(parse_options({"x"}, second)));
    const Environment here{{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}, {"OMPI_MCA_orte_num_nodes", "1"}};
    CHECK(launched({"x"}, under_mpirun(here)).config.nodes_max == 1);
    CHECK(complaint({"x"}, under_mpirun({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})).find("write mpirun -npernode 1") !=
          std::string::npos);
}

TEST_CASE("an MPI that does not tell where it runs needs an endpoint, and CPUs that it has taken away are told of") {
    const Environment hydra{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
    CHECK(complaint({"x"}, hydra).starts_with("muster: --rdzv-endpoint is missing: this is process 1 of mpirun"));
    const auto launch = launched({"--rdzv-endpoint=h", "--rdzv-id=mine", "x"}, hydra);
    CHECK((launch.config.nodes_min == 2 && launch.config.node_rank == 1 && launch.config.job == "mine"));
    // Two of its jobs on one musterd must not become one.
    CHECK(complaint({"--rdzv-endpoint=h", "x"}, hydra)
              .starts_with("muster: --rdzv-id is missing: this mpirun reports no"));
    CHECK(launched({"--master-addr=h", "--master-port=1", "x"}, hydra).config.nodes_max == 2);
    const Environment bound{{"OMPI_MCA_orte_bound_at_launch", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}};
    CHECK(says(launched({"x"}, under_mpirun(bound)), "write mpirun --bind-to none"));
}

TEST_CASE("pods of an indexed job meet in pod 0, by its name in the headless service") {
    const auto launch = launched({"x"}, in_pod());
    CHECK(launch.config.nodes_min == 4);
    CHECK(launch.config.endpoint.host == "train-0.workers.default.svc.cluster.local");
    CHECK(launch.config.endpoint.port == 29'400);
    CHECK(launch.config.job == "train");
    CHECK(launch.config.node_rank == 2);
    CHECK(launch.config.is_host == false);
    CHECK(launched({"x"}, in_pod({{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "train-0"}})).config.is_host == true);
    CHECK(launched({"--rdzv-endpoint=d:1", "x"}, in_pod()).config.endpoint.host == "d");
    CHECK(launched({"--nnodes=2:4", "x"}, in_pod()).config.nodes_min == 2);
}

TEST_CASE("the first process of a job knows the names of its hosts, where the scheduler tells them") {
    const auto first = in_pod({{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "train-0"}});
    CHECK(kubernetes_hosts_of_first_pod(first, 4) == "train-[0-3]");
    CHECK(kubernetes_hosts_of_first_pod(in_pod(), 4).empty());
    CHECK(kubernetes_hosts_of_first_pod(in_pod({{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "node7"}}), 4).empty());
    CHECK(kubernetes_hosts_of_first_pod({}, 4).empty());
    CHECK(mpi_hosts_of_first_process(under_mpirun()).empty());
    CHECK(mpi_hosts_of_first_process(under_mpirun({{"SLURM_JOB_NODELIST", "n[1-3]"}})).empty());
    CHECK(mpi_hosts_of_first_process(under_mpirun({{"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_JOB_NODELIST", "n[1-3]"}})) ==
          "n[1-3]");
    CHECK(mpi_hosts_of_first_process(under_mpirun({{"OMPI_COMM_WORLD_RANK", "0"}})).empty());
}

TEST_CASE("a pod that does not know how many there are runs a job of its own, and says so") {
    auto alone = in_pod();
    alone.erase("MUSTER_NNODES");
    const auto launch = launched({"x"}, alone);
    CHECK(launch.config.standalone);
    CHECK(says(launch, "write --nnodes N, or set MUSTER_NNODES"));
    CHECK(complaint({"--from=kubernetes", "x"}, alone)
              .starts_with("muster: --nnodes is missing: pods of an indexed job"));
    CHECK_FALSE(says(launched({"--nnodes=1", "x"}, alone), "pod"));
}

TEST_CASE("a pod that others cannot find, and one with another name, are one line each") {
    CHECK(complaint({"x"}, in_pod(), "10.244.1.3 train-2\n").find("set subdomain in the pod's template") !=
          std::string::npos);
    CHECK(complaint({"x"}, in_pod({{"HOSTNAME", "node7"}})).starts_with("muster: HOSTNAME: got 'node7', but pod 2"));
    CHECK(complaint({"x"}, in_pod({{"JOB_COMPLETION_INDEX", "two"}})).starts_with("muster: JOB_COMPLETION_INDEX: got"));
}

TEST_CASE("a pod with its node's name needs an endpoint and a job's name, and nothing where all is given") {
    const auto on_host = in_pod({{"HOSTNAME", "node7"}});
    const std::vector<std::string> most{"--rdzv-endpoint=d:1", "--rdzv-id=mine", "x"};
    CHECK(launched(most, on_host).config.node_rank == 2);
    CHECK(launched(most, on_host).config.job == "mine");
    CHECK(complaint({"--rdzv-id=mine", "x"}, on_host).starts_with("muster: HOSTNAME: got 'node7', but pod 2"));
    CHECK(complaint({"--rdzv-endpoint=d:1", "x"}, on_host).find("--rdzv-endpoint HOST:PORT and --rdzv-id, or") !=
          std::string::npos);
    // Nothing is asked of a pod whose options leave nothing open.
    const std::vector<std::string> all{"--nnodes=4",   "--rdzv-backend=c10d", "--rdzv-endpoint=d:1",
                                       "--rdzv-id=me", "--node-rank=3",       "x"};
    CHECK(launched(all, in_pod({{"JOB_COMPLETION_INDEX", "two"}})).config.node_rank == 3);
    // setHostnameAsFQDN.
    const auto whole = in_pod({{"HOSTNAME", "train-2.workers.default.svc.cluster.local"}});
    CHECK(launched({"x"}, whole).config.endpoint.host == "train-0.workers.default.svc.cluster.local");
    CHECK(launched({"x"}, whole).config.job == "train");
}

TEST_CASE("--from names a place, and what there is where it is none of these") {
    CHECK(complaint({"--from=mpi", "x"}, {}).find("write mpirun -npernode 1 muster") != std::string::npos);
    CHECK(complaint({"--from=kubernetes", "x"}, {}).find("completionMode: Indexed") != std::string::npos);
    CHECK(complaint({"--from=kubernets", "x"}, {}) ==
          "muster: --from: got 'kubernets'; accepted is auto, slurm, mpi, kubernetes or none (nearest: kubernetes)\n");
    // Where several are true, the one that is named.
    auto both = under_mpirun(in_pod());
    CHECK(launched({"--from=kubernetes", "x"}, both).config.job == "train");
    CHECK(launched({"--from=mpi", "--nnodes=3", "x"}, both).config.job == "mpi-727580673");
}

}  // namespace muster::launcher
