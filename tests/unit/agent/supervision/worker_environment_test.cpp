#include "agent/supervision/worker_environment.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

native::Assigned assignment() {
    native::Assigned assigned;
    assigned.round = 5;
    assigned.group_rank = 1;
    assigned.group_world_size = 3;
    assigned.rank_base = 8;
    assigned.world_size = 14;
    assigned.role_rank_base = 4;
    assigned.role_world_size = 6;
    assigned.restart_count = 2;
    assigned.store_addresses = {"gpu01", "10.0.0.1"};
    assigned.store_port = 41234;
    return assigned;
}

WorkerSpec spec() {
    WorkerSpec spec;
    spec.worker_count = 2;
    spec.role = "trainer";
    spec.job = "job7";
    spec.restarts_max = 3;
    return spec;
}

std::string value(const std::vector<std::string>& environment, const std::string& name) {
    for (const auto& variable : environment)
        if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
    return "(unset)";
}

}  // namespace

TEST_CASE("a worker's environment is torchrun's table on top of the agent's") {
    auto worker = spec();
    worker.environment = {
        {"PATH", "/bin"}, {"RANK", "99"}, {"MUSTER_AGENT_SOCKET", "outer"}, {"EMPTY", ""}, {"A", "b=c"}};
    // The names and forms were read from the workers of torchrun 2.13 (but for the two MUSTER_ ones).
    const std::vector<std::string> expected = {
        "A=b=c",
        "EMPTY=",
        "GROUP_RANK=1",
        "GROUP_WORLD_SIZE=3",
        "LOCAL_RANK=1",
        "LOCAL_WORLD_SIZE=2",
        "MASTER_ADDR=gpu01",
        "MASTER_PORT=41234",
        "MUSTER_AGENT_SOCKET=@m/1",
        "MUSTER_ROUND=5",
        "OMP_NUM_THREADS=1",
        "PATH=/bin",
        "RANK=9",
        "ROLE_NAME=trainer",
        "ROLE_RANK=5",
        "ROLE_WORLD_SIZE=6",
        "TORCHELASTIC_ERROR_FILE=/logs/1/error.json",
        "TORCHELASTIC_MAX_RESTARTS=3",
        "TORCHELASTIC_RESTART_COUNT=2",
        "TORCHELASTIC_RUN_ID=job7",
        "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCHELASTIC_USE_AGENT_STORE=True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
        "WORLD_SIZE=14",
    };
    WorkerFiles files;
    files.error_file = "/logs/1/error.json";
    files.agent_socket = "@m/1";
    CHECK(worker_environment(worker, assignment(), 1, files).value() == expected);
}

TEST_CASE("workers do not learn where the secret and etcd's login are") {
    auto worker = spec();
    const auto secrets = {"MUSTER_SECRET_FILE", "MUSTER_KEY", "MUSTER_KEY_OLD", "MUSTER_ETCD_LOGIN_FILE",
                          "CREDENTIALS_DIRECTORY"};
    for (const char* name : secrets) worker.environment[name] = "/secret";
    const auto given = worker_environment(worker, assignment(), 0, {}).value();
    for (const char* name : secrets) CHECK(value(given, name) == "(unset)");
}

TEST_CASE("workers learn that their channel gives a key of the ranks, and not from an outer muster") {
    auto worker = spec();
    worker.environment = {
        {"MUSTER_RANKS_SECURITY", "encrypt"}, {"MUSTER_AGENT_TOKEN", "outer"}, {"MUSTER_STORE_ADDR", "an outer one"}};
    CHECK(value(worker_environment(worker, assignment(), 0, {}).value(), "MUSTER_STORE_ADDR") == "(unset)");
    CHECK(value(worker_environment(worker, assignment(), 0, {}).value(), "MUSTER_RANKS_SECURITY") == "(unset)");
    CHECK(value(worker_environment(worker, assignment(), 0, {}).value(), "MUSTER_AGENT_TOKEN") == "(unset)");
    WorkerFiles files;
    files.agent_socket = "@m/1";
    files.agent_token = "t";
    files.has_ranks_key = true;
    CHECK(value(worker_environment(worker, assignment(), 0, files).value(), "MUSTER_AGENT_TOKEN") == "t");
    CHECK(value(worker_environment(worker, assignment(), 0, files).value(), "MUSTER_RANKS_SECURITY") == "auth");
}

TEST_CASE("an outer muster's channel is not handed on") {
    auto worker = spec();
    worker.environment = {{"MUSTER_AGENT_SOCKET", "outer"}};
    CHECK(value(worker_environment(worker, assignment(), 0, {}).value(), "MUSTER_AGENT_SOCKET") == "(unset)");
}

TEST_CASE("the checkpoint directory of an outer muster is not handed on, a person's own is") {
    auto worker = spec();
    worker.environment = {{"MUSTER_CHECKPOINT_DIR", "mine"}};
    const auto given = [&] {
        return value(worker_environment(worker, assignment(), 0, {}).value(), "MUSTER_CHECKPOINT_DIR");
    };
    CHECK(given() == "mine");
    worker.environment["MUSTER_AGENT_SOCKET"] = "outer";
    CHECK(given() == "(unset)");
    worker.checkpoint_dir = "/ours";
    CHECK(given() == "/ours");
}

TEST_CASE("without a log directory the error file is empty and not unset") {
    CHECK(value(worker_environment(spec(), assignment(), 0, {}).value(), "TORCHELASTIC_ERROR_FILE") == "");
}

TEST_CASE("OMP_NUM_THREADS is set for several workers only, and never changed") {
    auto worker = spec();
    const auto threads = [&] {
        return value(worker_environment(worker, assignment(), 0, {}).value(), "OMP_NUM_THREADS");
    };
    CHECK(threads() == "1");
    worker.environment["OMP_NUM_THREADS"] = "6";
    CHECK(threads() == "6");
    worker.worker_count = 1;
    CHECK(threads() == "6");
    worker.environment.clear();
    CHECK(threads() == "(unset)");
}

TEST_CASE("threads from cores are each worker's own, also for a single one, and the environment wins") {
    auto worker = spec();
    worker.threads = std::vector<std::uint32_t>(worker.worker_count, 3);
    worker.threads[1] = 4;
    const auto threads = [&](std::uint32_t local_rank) {
        return value(worker_environment(worker, assignment(), local_rank, {}).value(), "OMP_NUM_THREADS");
    };
    CHECK(threads(0) == "3");
    CHECK(threads(1) == "4");
    worker.environment["OMP_NUM_THREADS"] = "6";
    CHECK(threads(1) == "6");
}

TEST_CASE("threads for collectives are told where there are several, and the environment wins") {
    auto worker = spec();
    const auto threads = [&] {
        return value(worker_environment(worker, assignment(), 0, {}).value(), "MUSTER_COLLECTIVE_THREADS");
    };
    CHECK(threads() == "(unset)");
    worker.collective_threads = 4;
    CHECK(threads() == "4");
    worker.environment["MUSTER_COLLECTIVE_THREADS"] = "2";
    CHECK(threads() == "2");
}

TEST_CASE("NCCL's error handling keeps the agent's value") {
    auto worker = spec();
    worker.environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3";
    CHECK(value(worker_environment(worker, assignment(), 0, {}).value(), "TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3");
}

TEST_CASE("the static back end's endpoint goes before the assignment's") {
    auto worker = spec();
    worker.master_address = "head";
    worker.master_port = 29500;
    const auto environment = worker_environment(worker, assignment(), 0, {}).value();
    CHECK(value(environment, "MASTER_ADDR") == "head");
    CHECK(value(environment, "MASTER_PORT") == "29500");
}

TEST_CASE("a worker that serves the store itself is told so") {
    auto worker = spec();
    worker.agent_store = false;
    CHECK(value(worker_environment(worker, assignment(), 0, {}).value(), "TORCHELASTIC_USE_AGENT_STORE") == "False");
}

TEST_CASE("with virtual local ranks each worker sees one device, as local rank 0") {
    auto worker = spec();
    worker.virtual_local_rank = true;
    const auto seen = [&](std::uint32_t local_rank) {
        const auto environment = worker_environment(worker, assignment(), local_rank, {}).value();
        CHECK(value(environment, "LOCAL_RANK") == "0");
        return value(environment, "CUDA_VISIBLE_DEVICES");
    };
    CHECK(seen(0) == "0");
    CHECK(seen(1) == "1");
    worker.environment["CUDA_VISIBLE_DEVICES"] = "4, GPU-8f2e";
    CHECK(seen(0) == "4");
    CHECK(seen(1) == "GPU-8f2e");
    worker.environment["CUDA_VISIBLE_DEVICES"] = "4";
    const auto refused = worker_environment(worker, assignment(), 1, {});
    REQUIRE(refused.has_error());
    CHECK(refused.error().context.find("for local rank 1") != std::string::npos);
}

TEST_CASE("devices pass through untouched without virtual local ranks") {
    auto worker = spec();
    CHECK(value(worker_environment(worker, assignment(), 1, {}).value(), "CUDA_VISIBLE_DEVICES") == "(unset)");
    worker.environment["CUDA_VISIBLE_DEVICES"] = "1,0";
    CHECK(value(worker_environment(worker, assignment(), 1, {}).value(), "CUDA_VISIBLE_DEVICES") == "1,0");
}

TEST_CASE("an assignment without a store's address is an error and no crash") {
    auto assigned = assignment();
    assigned.store_addresses.clear();
    CHECK(worker_environment(spec(), assigned, 0, {}).has_error());
}

TEST_CASE("macros are replaced in every argument but the program itself") {
    auto worker = spec();
    worker.argv = {"/opt/$local_rank/python", "-u", "train_${local_rank}.py", "--cost=5$$", "$other"};
    CHECK(worker_argv(worker, 1) ==
          std::vector<std::string>{"/opt/$local_rank/python", "-u", "train_1.py", "--cost=5$", "$other"});
}

TEST_CASE(
    "torch's hook stands behind what the user has on Python's path, and an outer muster's socket is not handed on") {
    auto worker = spec();
    worker.environment = {{"MUSTER_TORCH_SOCKET", "outer"}};
    const auto given = [&worker](const WorkerFiles& files, const char* name) {
        return value(worker_environment(worker, assignment(), 0, files).value(), name);
    };
    CHECK(given({}, "MUSTER_TORCH_SOCKET") == "(unset)");
    CHECK(given({}, "PYTHONPATH") == "(unset)");
    WorkerFiles files;
    files.torch_hook = "/logs/torch";
    files.torch_socket = "/logs/torch/0.sock";
    CHECK(given(files, "MUSTER_TORCH_SOCKET") == "/logs/torch/0.sock");
    CHECK(given(files, "PYTHONPATH") == "/logs/torch");
    worker.environment["PYTHONPATH"] = "/mine";
    CHECK(given(files, "PYTHONPATH") == "/mine:/logs/torch");
}
