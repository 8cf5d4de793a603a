// The rules that span several options.
#include "launcher/launch_rules.h"

#include <csignal>

#include "launcher/options.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

LaunchConfig config_of(std::vector<std::string> words, const Environment& environment = {}) {
    words.push_back("train.py");
    const auto parsed = parse_options(words, environment);
    if (const auto* error = std::get_if<UsageError>(&parsed)) FAIL(error->line);
    return std::get<Launch>(parsed).config;
}

std::string error_of(std::vector<std::string> words, const Environment& environment = {}) {
    words.push_back("train.py");
    const auto parsed = parse_options(words, environment);
    const auto* error = std::get_if<UsageError>(&parsed);
    return error != nullptr ? error->line : "no error";
}

}  // namespace

TEST_CASE("one node without an endpoint and without a master port is standalone") {
    const auto config = config_of({});
    CHECK(config.standalone);
    CHECK(config.backend == Backend::c10d);
    CHECK(config.endpoint == Endpoint{"localhost", 0});
    CHECK(config.job.size() == 36);
    CHECK(config.job != config_of({}).job);
    CHECK_FALSE(config_of({"--master-port=29511"}).standalone);
    CHECK_FALSE(config_of({}, {{"PET_MASTER_PORT", "29511"}}).standalone);
    CHECK_FALSE(config_of({"--rdzv-backend=c10d"}).standalone);
}

TEST_CASE("--standalone overrides the rendezvous that was given") {
    const auto config = config_of({"--standalone", "--rdzv-backend=static", "--rdzv-endpoint=h:5", "--rdzv-id=mine"});
    CHECK(config.backend == Backend::c10d);
    CHECK(config.endpoint == Endpoint{"localhost", 0});
    CHECK(config.job != "mine");
    CHECK(error_of({"--standalone", "--nnodes=2"}).find("--nnodes asks for at least 2") != std::string::npos);
}

TEST_CASE("static meets at the master address") {
    const auto config = config_of({"--nnodes=2", "--node-rank=1", "--master-addr=gpu01", "--master-port=29511"});
    CHECK(config.backend == Backend::fixed);
    CHECK(config.endpoint == Endpoint{"gpu01", 29511});
    CHECK(config.node_rank == 1);
    CHECK(config.join_timeout == 900s);
    CHECK(config_of({"--master-port=29500", "--master-addr=[::1]"}).endpoint == Endpoint{"::1", 29500});
    CHECK(config_of({"--nnodes=2", "--master-addr=gpu01"}).endpoint.port == 29500);
    CHECK(config_of({"--nnodes=2", "--rdzv-endpoint=gpu01:7"}).endpoint == Endpoint{"gpu01", 7});
    CHECK(config_of({"--master-port=1", "--rdzv-conf=timeout=30"}).join_timeout == 30s);
    CHECK(error_of({"--nnodes=2", "--rdzv-endpoint=gpu01"}).find("needs a port") != std::string::npos);
    CHECK(error_of({"--nnodes=2", "--node-rank=2", "--master-addr=gpu01"}).find("accepted are 0 to 1") !=
          std::string::npos);
}

TEST_CASE("several nodes must be told where to meet") {
    for (const auto& words :
         std::vector<std::vector<std::string>>{{"--nnodes=2"}, {"--nnodes=1:2", "--rdzv-backend=c10d"}}) {
        const auto line = error_of(words);
        CHECK(line.find("--rdzv-endpoint is missing") != std::string::npos);
        CHECK(line.find("write --rdzv-endpoint HOST:PORT") != std::string::npos);
    }
    CHECK(config_of({"--rdzv-backend=c10d"}).endpoint == Endpoint{"localhost", 29400});
    CHECK(config_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h"}).endpoint == Endpoint{"h", 29400});
    CHECK(error_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:0"}).find("port 0") != std::string::npos);
    CHECK(error_of({"--rdzv-backend=c10d", "--rdzv-endpoint=a b:1"}).find("--rdzv-endpoint: ") != std::string::npos);
}

TEST_CASE("it is remembered whether the number of nodes and the endpoint were written") {
    CHECK_FALSE(config_of({"--rdzv-backend=c10d"}).nodes_given);
    CHECK(config_of({"--rdzv-backend=c10d"}).endpoint_option.empty());
    CHECK(config_of({"--nnodes=1"}).nodes_given);
    CHECK(config_of({}, {{"PET_NNODES", "1"}}).nodes_given);
    CHECK(config_of({"--rdzv-backend=c10d", "--rdzv-endpoint=h"}).endpoint_option == "--rdzv-endpoint");
    CHECK(config_of({"--master-addr=h", "--master-port=1"}).endpoint_option == "--master-addr");
}

TEST_CASE("rdzv-conf fills the time-outs, and given twice the last one counts") {
    const auto config =
        config_of({"--rdzv-backend=c10d", "--rdzv-conf=join_timeout=1", "--rdzv-conf",
                   "last_call_timeout = 3, is_host=0 ,keep_alive_interval=2,keep_alive_max_attempt=4,read_timeout=9"});
    CHECK(config.join_timeout == 600s);
    CHECK(config.last_call == 3s);
    CHECK(config.is_host == false);
    CHECK(config.lease == 8s);
    CHECK(config_of({"--rdzv-backend=c10d", "--lease=1.5", "--rdzv-conf=keep_alive_interval=9"}).lease == 1500ms);
    CHECK(config_of({"--rdzv-backend=c10d", "--rdzv-conf=join_timeout=0.5"}).join_timeout == 500ms);
}

TEST_CASE("the lost time-out grows with the lease, and one shorter than the lease is refused") {
    CHECK(config_of({"--rdzv-backend=c10d"}).lost_timeout == 60s);
    CHECK(config_of({"--rdzv-backend=c10d", "--lease=90"}).lost_timeout == 180s);
    CHECK(config_of({"--rdzv-backend=c10d", "--lease=90", "--rdzv-lost-timeout=100"}).lost_timeout == 100s);
    CHECK(error_of({"--rdzv-backend=c10d", "--lease=90", "--rdzv-lost-timeout=60"}).find("90 s, or more") !=
          std::string::npos);
}

TEST_CASE("what runs: module, program, run-path, or the file's own nature") {
    CHECK(config_of({}).entry == EntryKind::by_content);
    CHECK(config_of({"-m"}).entry == EntryKind::module);
    CHECK(config_of({"--no-python"}).entry == EntryKind::program);
    CHECK(config_of({"--run-path", "--no-python"}).entry == EntryKind::run_path);
    CHECK(error_of({"-m", "--no-python"}).find("--no-python and --module exclude each other") != std::string::npos);
}

TEST_CASE("the grace is --shutdown-timeout, else torch's variable, else 30 s") {
    const Environment environment{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "12"}};
    CHECK(config_of({}).grace == 30s);
    CHECK(config_of({}, environment).grace == 12s);
    CHECK(config_of({"--shutdown-timeout=0"}, environment).grace == 0s);
    CHECK(
        error_of({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}}).find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: got 'soon'") !=
        std::string::npos);
}

TEST_CASE("signals that cannot be handled are named and left out") {
    const auto parsed = parse_options({"--signals-to-handle", "SIGUSR1, SIGNONE,SIGKILL", "t.py"}, {});
    const auto& launch = std::get<Launch>(parsed);
    CHECK(launch.config.handled_signals == std::vector<int>{SIGUSR1});
    CHECK(launch.config.handled_signal_names == "SIGUSR1, SIGNONE,SIGKILL");
    CHECK(launch.warnings.size() == 2);
    CHECK(config_of({}).handled_signals == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
}

TEST_CASE("output options") {
    CHECK(config_of({"--log-dir=/dev/null"}).log_dir_null);
    CHECK(config_of({"--local-ranks-filter=0,12"}).local_ranks_filter == std::vector<std::uint32_t>{0, 12});
    CHECK(config_of({"--duplicate-stdout-filters=a,,b,c"}).stdout_filters == std::vector<std::string>{"a,b", "c"});
    CHECK(config_of({"--prefix=host"}).host_prefix);
    CHECK(config_of({}, {{"LOGLEVEL", "INFO"}}).log_level == LogLevel::info);
    CHECK(config_of({"--log-level=error"}, {{"LOGLEVEL", "INFO"}}).log_level == LogLevel::error);
    CHECK(config_of({"--store-port=29600-29610"}).store_ports == PortRange{29600, 29610});
    CHECK_FALSE(config_of({}, {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}}).share_store);
}
