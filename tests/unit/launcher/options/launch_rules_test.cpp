// The rules that span several options.
#include "launcher/options/launch_rules.h"

#include <csignal>

#include "launcher/options/options.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/options/config_of.h"

using namespace muster;
using namespace muster::launcher;

namespace {

std::string contradiction(std::vector<std::string> words, const Environment& environment = {}) {
    words.push_back("train.py");
    const auto parsed = parse_options(words, environment);
    const auto* error = std::get_if<UsageError>(&parsed);
    return error != nullptr ? error->line : "no error";
}

}  // namespace

TEST_CASE("encryption between ranks closes the door of the store, too, where agents of several nodes serve it") {
    const std::vector<std::string> encrypts{"--nnodes=2", "--rdzv-endpoint=node0", "--wire-security=encrypt"};
    const auto with = [&](std::vector<std::string> more, const Environment& environment = {}) {
        more.insert(more.begin(), encrypts.begin(), encrypts.end());
        return config_of(more, environment);
    };
    CHECK(with({"--rdzv-backend=c10d"}).store_door);
    CHECK(with({"--rdzv-backend=c10d"}).store_relay);
    CHECK(with({"--rdzv-backend=etcd"}).store_door);
    CHECK_FALSE(with({"--rdzv-backend=c10d", "--wire-security=auth"}).store_door);
    CHECK_FALSE(with({"--rdzv-backend=c10d", "--nnodes=1"}).store_door);
    CHECK_FALSE(with({"--rdzv-backend=c10d"}, {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}}).store_door);
    CHECK_FALSE(config_of({"--nnodes=2", "--rdzv-backend=static", "--master-addr=node0", "--wire-security=encrypt"})
                    .store_door);
}

TEST_CASE("encryption between ranks says where the store stays in clear text, and refuses --insecure") {
    const auto warned = [](const std::vector<std::string>& words, const Environment& environment = {}) {
        const auto parsed = parse_options(words, environment);
        return join(std::get<Launch>(parsed).warnings, "\n").find("the workers' store is in clear text") !=
               std::string::npos;
    };
    const std::string_view variable = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
    CHECK(warned({"--nnodes=2", "--master-addr=node0", "--wire-security=encrypt", "train.py"}));
    CHECK(warned({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--wire-security=encrypt", "train.py"},
                 {{std::string(variable), "1"}}));
    CHECK_FALSE(
        warned({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--wire-security=encrypt", "train.py"}));
    CHECK_FALSE(warned({"--nnodes=2", "--master-addr=node0", "train.py"}));
    CHECK_FALSE(warned({"--wire-security=encrypt", "train.py"}));
    const auto refused = contradiction(
        {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--wire-security=encrypt", "--insecure"});
    CHECK(refused.find("--wire-security encrypt contradicts --insecure") != std::string::npos);
}

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
    CHECK(contradiction({"--standalone", "--nnodes=2"}).find("--nnodes asks for at least 2") != std::string::npos);
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
    for (const char* quoted :
         {"'join_timeout=7,timeout=30'", "\"join_timeout=7,timeout=30\"", " \" join_timeout=7 \" "})
        CHECK(config_of({"--rdzv-backend=c10d", cat("--rdzv-conf=", quoted)}).join_timeout == 7s);
    CHECK(config_of({"--master-port=1", "--rdzv-conf=\"\""}).join_timeout == 900s);
    CHECK(contradiction({"--rdzv-conf=\"timeout=7"}).find("unknown key '\"timeout'") != std::string::npos);
    CHECK(config_of({"--max-restarts=1"}).stalled_restarts_max == 3);
    CHECK(config_of({"--max-restarts=3", "--max-stalled-restarts=3"}).stalled_restarts_max == 3);
    CHECK(config_of({"--max-restarts=1/1h", "--max-stalled-restarts=9"}).stalled_restarts_max == 9);
    CHECK(config_of({"--max-stalled-restarts=9"}).stalled_restarts_max == 9);  // for jobs that restart
    // Who loses the rendezvous stops its workers after that wait, not within it.
    CHECK(config_of({"--rdzv-backend=c10d", "--shutdown-timeout=300", "--rdzv-lost-timeout=30"}).grace == 300s);
    CHECK(contradiction({"--nnodes=2", "--rdzv-endpoint=gpu01"}).find("needs a port") != std::string::npos);
    CHECK(contradiction({"--nnodes=2", "--node-rank=2", "--master-addr=gpu01"}).find("accepted are 0 to 1") !=
          std::string::npos);
}

TEST_CASE("several nodes must be told where to meet") {
    const auto line = contradiction({"--nnodes=1:2", "--rdzv-backend=c10d"});
    CHECK(line.find("--rdzv-endpoint is missing") != std::string::npos);
    CHECK(line.find("write --rdzv-endpoint HOST:PORT") != std::string::npos);
    const auto fixed = contradiction({"--nnodes=2"});
    CHECK(fixed.find("--master-addr is missing") != std::string::npos);
    CHECK(fixed.find("write --master-addr HOST [--master-port PORT]") != std::string::npos);
    CHECK(fixed.find("--rdzv-endpoint") == std::string::npos);
    CHECK(config_of({"--rdzv-backend=c10d"}).endpoint == Endpoint{"localhost", 29400});
    CHECK(config_of({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h"}).endpoint == Endpoint{"h", 29400});
    CHECK(contradiction({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:0"}).find("port 0") !=
          std::string::npos);
    CHECK(contradiction({"--rdzv-backend=c10d", "--rdzv-endpoint=a b:1"}).find("--rdzv-endpoint: ") !=
          std::string::npos);
}

TEST_CASE("in brackets there may be several addresses of one host, and commas elsewhere are between hosts") {
    const std::vector<std::string> base{"--nnodes=2", "--rdzv-backend=c10d"};
    const auto with = [&](const std::string& endpoint, std::vector<std::string> words) {
        words.push_back("--rdzv-endpoint=" + endpoint);
        return words;
    };
    const auto one = config_of(with("[10.0.0.1,fd00::1]:7", base));
    CHECK(one.endpoint == Endpoint{"10.0.0.1,fd00::1", 7});
    CHECK(one.more_endpoints.empty());
    const auto two = config_of(with("a:1,[10.0.0.1,10.1.0.1]:2,[::1]", base));
    CHECK(two.endpoint == Endpoint{"a", 1});
    CHECK(two.more_endpoints == std::vector<Endpoint>{{"10.0.0.1,10.1.0.1", 2}, {"::1", 29400}});
    CHECK(contradiction(with("[gpu01,gpu02]:7", base)).find("'gpu01' is not a numeric address") != std::string::npos);
    CHECK(contradiction(with("[10.0.0.1,]:7", base)).find("'' is not a numeric address") != std::string::npos);
    CHECK(contradiction(with("[10.0.0.1,10.1.0.1", base)).find("has no ']'") != std::string::npos);
    CHECK(contradiction(with("[10.0.0.1,10.1.0.1]:7", {"--nnodes=2"})).find("it becomes MASTER_ADDR") !=
          std::string::npos);
    const auto etcd = config_of(with("[10.0.0.1,10.1.0.1]:3,e2", {"--nnodes=2", "--rdzv-backend=etcd"}));
    CHECK(etcd.etcd->members == std::vector<Endpoint>{{"10.0.0.1,10.1.0.1", 3}, {"e2", 2379}});
}

TEST_CASE("with etcd the endpoint names its members, and --rdzv-conf has torchrun's keys for both of its back ends") {
    const auto config =
        config_of({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=localhost:1,e2,[::2]:3", "--rdzv-id=a/b",
                   "--rdzv-conf=protocol=https,cacert=ca.pem,cert=c.pem,key=k.pem,timeout=7,daemon_port=5-6"});
    REQUIRE(config.etcd);
    CHECK(config.backend == Backend::c10d);
    CHECK(config.etcd->members == std::vector<Endpoint>{{"localhost", 1}, {"e2", 2379}, {"::2", 3}});
    CHECK(config.endpoint == Endpoint{"e2", 2379});
    CHECK(config.etcd->prefix == "muster/jobs/a%2Fb/");
    REQUIRE(config.etcd->tls);
    CHECK(config.etcd->tls->ca == "ca.pem");
    CHECK(config.etcd->tls->key == "k.pem");
    CHECK(config.join_timeout == 7s);
    CHECK(config.daemon_ports == PortRange{5, 6});
    const auto v2 = config_of(
        {"--rdzv-backend=etcd-v2", "--rdzv-conf=protocol=https,ca_cert=ca,ssl_cert=c,ssl_cert_key=k,etcd_prefix=/x"});
    CHECK(v2.etcd->members == std::vector<Endpoint>{{"localhost", 2379}});
    CHECK(v2.etcd->prefix == "/x/none/");
    CHECK(v2.etcd->tls->certificate == "c");
    CHECK_FALSE(config_of({"--rdzv-backend=etcd"}).etcd->tls);
    CHECK_FALSE(config_of({"--rdzv-backend=etcd"}).standalone);
    CHECK_FALSE(config_of({"--standalone", "--rdzv-backend=etcd"}).etcd);
    CHECK(config_of({"--rdzv-backend=etcd"}, {{"MUSTER_ETCD_LOGIN_FILE", "f"}}).etcd_login_file == "f");
}

TEST_CASE("what contradicts itself about etcd is refused") {
    const auto says = [](std::vector<std::string> words, std::string_view what) {
        return contradiction(std::move(words)).find(what) != std::string::npos;
    };
    CHECK(says({"--nnodes=2", "--rdzv-backend=etcd"}, "it names the members of etcd"));
    CHECK(says({"--rdzv-backend=etcd", "--rdzv-endpoint=a b"}, "--rdzv-endpoint: "));
    CHECK(says({"--rdzv-backend=etcd", "--rdzv-conf=cacert=x"}, "use https"));
    CHECK(says({"--rdzv-backend=etcd", "--rdzv-conf=protocol=https,cert=x"}, "go together"));
    CHECK(says({"--rdzv-backend=etcd", "--rdzv-conf=protocol=ftp"}, "accepted is http or https"));
    CHECK(says({"--rdzv-backend=etcd", "--rdzv-conf=daemon_port=x"}, "accepted is a port P, or a range P-Q"));
    const auto parsed = parse_options({"--rdzv-backend=c10d", "--rdzv-conf=cacert=x", "t.py"}, {});
    CHECK(std::get<Launch>(parsed).warnings ==
          std::vector<std::string>{"--rdzv-conf cacert has no effect without --rdzv-backend etcd"});
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
    CHECK(contradiction({"--rdzv-backend=c10d", "--lease=90", "--rdzv-lost-timeout=60"}) ==
          "muster: --lease of 90 s contradicts --rdzv-lost-timeout of 60 s: a node would leave the rendezvous before "
          "the rendezvous counts it as lost; make --rdzv-lost-timeout longer\n");
}

TEST_CASE("waits and budgets that contradict each other are refused, and both are named") {
    const std::vector<std::pair<std::vector<std::string>, std::string>> refused{
        {{"--lease=5", "--rdzv-lost-timeout=5"}, "--lease of 5 s contradicts --rdzv-lost-timeout of 5 s"},
        {{"--rdzv-conf=join_timeout=10,last_call_timeout=20"},
         "last_call_timeout of --rdzv-conf of 20 s contradicts join_timeout of --rdzv-conf of 10 s"},
        {{"--rdzv-conf=join_timeout=10", "--shutdown-timeout=10"},
         "--shutdown-timeout of 10 s contradicts join_timeout of --rdzv-conf of 10 s"},
        {{"--lease=40", "--rdzv-conf=join_timeout=30"},
         "--lease of 40 s contradicts join_timeout of --rdzv-conf of 30 s"},
        {{"--rdzv-lost-timeout=3"}, "--lease of 5 s (the default) contradicts --rdzv-lost-timeout of 3 s"},
        {{"--max-restarts=1", "--node-failures=2/5"}, "--node-failures 2/5 contradicts --max-restarts 1"},
        {{"--max-restarts=3", "--max-stalled-restarts=4"}, "--max-stalled-restarts 4 contradicts --max-restarts 3"},
        {{"--max-restarts=0/1h"}, "contradicts 0 restarts"},
        {{"--node-failures=2/5"}, "--node-failures 2/5 contradicts --max-restarts 0 (the default)"},
        {{"--restart-early-failures"}, "--restart-early-failures contradicts --max-restarts 0 (the default)"},
        {{"--standalone", "--spares=1"}, "--spares 1 contradicts a single-node rendezvous"},
        {{"--rdzv-backend=static", "--master-port=1", "--spares=1"}, "--spares 1 contradicts --rdzv-backend static"},
        {{"--preemption-signal=SIGTERM"},
         "--preemption-signal 15 contradicts --signals-to-handle, whose signals stop the job: "
         "SIGTERM,SIGINT,SIGHUP,SIGQUIT (the default)"},
        {{"--preemption-signal=USR1", "--signals-to-handle=SIGUSR1"}, "contradicts --signals-to-handle"},
    };
    for (const auto& [given, line] : refused) {
        INFO(line);
        std::vector<std::string> words{"--rdzv-backend=c10d"};
        words.insert(words.end(), given.begin(), given.end());
        CHECK(contradiction(words).find(line) != std::string::npos);
    }
}

TEST_CASE("a default that can give way does, and one that torchrun lets be is let be") {
    for (const auto* longer : {"--shutdown-timeout=900", "--rdzv-conf=last_call_timeout=900", "--lease=900"})
        CHECK(config_of({"--rdzv-backend=c10d", longer}).join_timeout == 1800s);
    CHECK(config_of({"--master-port=1", "--rdzv-conf=timeout=30"}).join_timeout == 30s);
    // A short join time-out is kept to without a word: whoever writes it wants an end soon.
    const auto parsed = parse_options(
        {"--rdzv-backend=c10d", "--nnodes=2", "--rdzv-endpoint=h:1", "--rdzv-conf=join_timeout=5", "t.py"}, {});
    REQUIRE(std::holds_alternative<Launch>(parsed));
    CHECK(std::get<Launch>(parsed).config.join_timeout == 5s);
    CHECK(std::get<Launch>(parsed).warnings.empty());
}

TEST_CASE("the restart budget is a number, or a number within a window") {
    CHECK(config_of({"--max-restarts=3"}).restarts_max == 3);
    CHECK(config_of({"--max-restarts=3"}).restarts_window == Duration::zero());
    for (const auto& [text, window] : std::vector<std::pair<std::string, Duration>>{
             {"10/90s", 90s}, {"10/5m", 300s}, {"10/1h", 3600s}, {"10/30d", 30 * 24h}}) {
        const auto config = config_of({"--max-restarts=" + text});
        CHECK(config.restarts_max == 10);
        CHECK(config.restarts_window == window);
    }
}

TEST_CASE("nodes are left out by default where a spare can take their place") {
    const std::vector<std::string> elastic{"--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--nnodes=2",
                                           "--max-restarts=9"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), elastic.begin(), elastic.end());
        return config_of(more);
    };
    CHECK(with({}).node_failures_max == 0);
    CHECK(with({"--spares=1"}).node_failures_max == 2);
    CHECK(with({"--spares=1"}).node_failures_of == 5);
    CHECK(with({"--spares=1", "--node-failures=0"}).node_failures_max == 0);
    CHECK(with({"--node-failures=3/4"}).node_failures_max == 3);
    CHECK(with({"--spares=1", "--max-restarts=0"}).node_failures_max == 0);
}

TEST_CASE("the preemption signal is a name or a number") {
    for (const auto* text : {"SIGUSR1", "USR1", "10"})
        CHECK(config_of({cat("--preemption-signal=", text)}).preemption_signal == SIGUSR1);
    CHECK(config_of({}).preemption_signal == 0);
}

TEST_CASE("what runs: module, program, run-path, or the file's own nature") {
    CHECK(config_of({}).entry == EntryKind::by_content);
    CHECK(config_of({"-m"}).entry == EntryKind::module);
    CHECK(config_of({"--no-python"}).entry == EntryKind::program);
    CHECK(config_of({"--run-path", "--no-python"}).entry == EntryKind::run_path);
    CHECK(contradiction({"-m", "--no-python"}).find("--no-python contradicts --module") != std::string::npos);
}

TEST_CASE("--use-env takes the local rank out of the arguments again, and a program of its own wants it so") {
    CHECK_FALSE(config_of({}).local_rank_argument);
    CHECK(config_of({"--local-rank-argument"}).local_rank_argument);
    CHECK_FALSE(config_of({"--local-rank-argument", "--use_env"}).local_rank_argument);
    CHECK(contradiction({"--local-rank-argument", "--no-python"}).find("needs --use-env") != std::string::npos);
    CHECK(config_of({"--local-rank-argument", "--no-python", "--use-env"}).entry == EntryKind::program);
}

TEST_CASE("the grace is --shutdown-timeout, else torch's variable, else 30 s") {
    const Environment environment{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "12"}};
    CHECK(config_of({}).grace == 30s);
    CHECK(config_of({}, environment).grace == 12s);
    CHECK(config_of({"--shutdown-timeout=0"}, environment).grace == 0s);
    CHECK(contradiction({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}})
              .find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: got 'soon'") != std::string::npos);
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
