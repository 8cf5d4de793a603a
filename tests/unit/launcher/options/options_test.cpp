// argv and environment in, configuration or message out.
#include "launcher/options/options.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "launcher/options/command_line.h"
#include "launcher/options/option_table.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/holds.h"
#include "tests/unit/launcher/options/config_of.h"

using namespace muster;
using namespace muster::launcher;
using muster::test::holds;

namespace {

std::string error_of(std::vector<std::string> words, const Environment& environment = {}) {
    const auto parsed = parse_options(words, environment);
    const auto* error = std::get_if<UsageError>(&parsed);
    return error != nullptr ? error->line : "no error";
}

/// A value that the option accepts and that is not its default.
std::string sample_value(std::string_view name) {
    static const std::map<std::string_view, std::string> samples{{"nnodes", "1:1"},
                                                                 {"nproc-per-node", "4"},
                                                                 {"node-rank", "0"},
                                                                 {"role", "r"},
                                                                 {"spares", "2"},
                                                                 {"rdzv-backend", "c10d"},
                                                                 {"rdzv-endpoint", "h:1"},
                                                                 {"rdzv-id", "j"},
                                                                 {"rdzv-conf", "join_timeout=5"},
                                                                 {"master-addr", "h"},
                                                                 {"master-port", "1"},
                                                                 {"local-addr", "h"},
                                                                 {"store-port", "5-6"},
                                                                 {"lease", "2"},
                                                                 {"rdzv-lost-timeout", "9"},
                                                                 {"numa-binding", "node"},
                                                                 {"omp", "auto"},
                                                                 {"torch-backend", "muster"},
                                                                 {"max-restarts", "3"},
                                                                 {"node-failures", "2/5"},
                                                                 {"preemption-signal", "SIGUSR1"},
                                                                 {"shutdown-timeout", "7"},
                                                                 {"hang-timeout", "5"},
                                                                 {"preflight", "off"},
                                                                 {"preflight-skip", "firewall,gpus"},
                                                                 {"preflight-limits", "limits.conf"},
                                                                 {"health-check", "/usr/sbin/nhc"},
                                                                 {"health-dir", "/opt/checks"},
                                                                 {"health-interval", "5"},
                                                                 {"health-timeout", "5"},
                                                                 {"warm-workers", "2"},
                                                                 {"warm-imports", "torch,a.b"},
                                                                 {"signals-to-handle", "SIGTERM"},
                                                                 {"config", "muster.conf"},
                                                                 {"from", "none"},
                                                                 {"exit-code", "torchrun"},
                                                                 {"on-worker-failure", "keep"},
                                                                 {"keep-limit", "2"},
                                                                 {"checkpoint-dir", "c"},
                                                                 {"checkpoint-local-dir", "l"},
                                                                 {"max-stalled-restarts", "2"},
                                                                 {"persist-timeout", "5"},
                                                                 {"log-dir", "d"},
                                                                 {"local-users", "all"},
                                                                 {"wire-security", "encrypt"},
                                                                 {"allow-from", "10.0.0.0/8,fd00::1"},
                                                                 {"redirects", "3"},
                                                                 {"tee", "3"},
                                                                 {"local-ranks-filter", "0"},
                                                                 {"duplicate-stdout-filters", "a"},
                                                                 {"duplicate-stderr-filters", "a"},
                                                                 {"console", "fold"},
                                                                 {"prefix", "host"},
                                                                 {"report", "r"},
                                                                 {"events", "e"},
                                                                 {"metrics-file", "m"},
                                                                 {"metrics-listen", "9400"},
                                                                 {"hpc-job-mapping-dir", "d"},
                                                                 {"log-level", "debug"},
                                                                 {"monitor-interval", "1"},
                                                                 {"start-method", "fork"},
                                                                 {"event-log-handler", "null"},
                                                                 {"logs-specs", "default"}};
    const auto found = samples.find(name);
    return found == samples.end() ? std::string{} : found->second;
}

/// What an option needs beside it: one that contradicts the defaults is refused.
Environment company(std::string_view name) {
    if (name == "spares") return {{"PET_RDZV_BACKEND", "c10d"}, {"PET_RDZV_ENDPOINT", "h:1"}};
    if (name == "keep-limit") return {{"MUSTER_ON_WORKER_FAILURE", "keep"}};
    if (name == "node-failures" || name == "restart-early-failures") return {{"PET_MAX_RESTARTS", "2"}};
    return {};
}

const GivenOption* only_option(const std::vector<std::string>& words) {
    static std::variant<CommandLine, CommandLineError> read;
    read = read_command_line(words);
    if (const auto* error = std::get_if<CommandLineError>(&read)) FAIL(error->line);
    const auto& line = std::get<CommandLine>(read);
    REQUIRE(line.options.size() == 1);
    return &line.options.front();
}

}  // namespace

TEST_CASE("every option is read in both spellings, with its value attached or following, and as a variable") {
    for (const auto& row : option_table()) {
        if (row.accept == nullptr) continue;
        std::string underscored(row.name);
        std::replace(underscored.begin(), underscored.end(), '-', '_');
        const bool flag = row.kind == ValueKind::flag;
        const std::string value = flag ? "1" : sample_value(row.name);
        INFO("option " << row.name);
        REQUIRE_FALSE(value.empty());
        for (const auto& name : {cat("--", row.name), cat("--", underscored)}) {
            std::vector<std::vector<std::string>> forms;
            if (flag)
                forms = {{name}};
            else
                forms = {{name, value}, {cat(name, "=", value)}};
            if (row.letter != 0 && flag) forms.push_back({cat('-', row.letter)});
            if (row.letter != 0 && !flag) {
                forms.push_back({cat('-', row.letter, value)});
                forms.push_back({cat('-', row.letter), value});
            }
            for (auto words : forms) {
                const auto* given = only_option(words);
                CHECK(given->row == &row);
                CHECK(given->value == value);
                words.push_back("train.py");
                CHECK(std::holds_alternative<Launch>(parse_options(words, company(row.name))));
            }
        }
        std::string variable = underscored;
        std::transform(variable.begin(), variable.end(), variable.begin(), ::toupper);
        for (const auto* prefix : {"MUSTER_", "PET_"}) {
            auto environment = company(row.name);
            environment[prefix + variable] = value;
            CHECK(std::holds_alternative<Launch>(parse_options({"train.py"}, environment)));
        }
    }
}

TEST_CASE("a bad value in the environment is an error that names the variable, for every option that refuses any") {
    const std::set<std::string_view> takes_any_text{"role",
                                                    "preflight-skip",
                                                    "preflight-limits",
                                                    "health-check",
                                                    "health-dir",
                                                    "rdzv-id",
                                                    "local-addr",
                                                    "log-dir",
                                                    "report",
                                                    "events",
                                                    "metrics-file",
                                                    "hpc-job-mapping-dir",
                                                    "checkpoint-dir",
                                                    "checkpoint-local-dir",
                                                    "signals-to-handle",
                                                    "duplicate-stdout-filters",
                                                    "duplicate-stderr-filters",
                                                    "master-addr",
                                                    "rdzv-endpoint",
                                                    "rdzv-conf"};
    for (const auto& row : option_table()) {
        if (row.accept == nullptr || takes_any_text.contains(row.name)) continue;
        std::string variable(row.name);
        std::transform(variable.begin(), variable.end(), variable.begin(),
                       [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
        INFO("option " << row.name);
        const auto ours = error_of({"train.py"}, {{"MUSTER_" + variable, "\x01"}});
        const auto torchs = error_of({"train.py"}, {{"PET_" + variable, "\x01"}});
        const bool has_pet = row.from_environment && row.origin == Origin::torchrun;
        CHECK(holds(ours, "MUSTER_" + variable + ": got '\x01'") == row.from_environment);
        CHECK(holds(torchs, "PET_" + variable + ": got '\x01'") == has_pet);
    }
}

TEST_CASE("a start by PyTorch's Python API takes nothing from PET_*") {
    Environment environment{{"PET_NNODES", "2"}, {"PET_NPROC_PER_NODE", "\x01"}, {"MUSTER_ROLE", "r"}};
    CHECK(holds(error_of({"train.py"}, environment), "PET_NPROC_PER_NODE: got '\x01'"));
    environment["MUSTER_CALLER_REPORT"] = "/folder/report.json";
    CHECK(config_of({}, environment).nodes_min == 1);
    CHECK(config_of({}, environment).role == "r");
}

TEST_CASE("a muster inside a worker of another one takes no checkpoint directory from it") {
    const Environment outer{{"MUSTER_CHECKPOINT_DIR", "/c"}, {"MUSTER_CHECKPOINT_LOCAL_DIR", "/l"}};
    CHECK(config_of({}, outer).checkpoint_dir == "/c");
    Environment inner = outer;
    inner["MUSTER_AGENT_SOCKET"] = "@muster/1";
    CHECK(config_of({}, inner).checkpoint_dir.empty());
    CHECK(config_of({}, inner).checkpoint_local_dir.empty());
    CHECK(config_of({"--checkpoint-dir", "/d"}, inner).checkpoint_dir == "/d");
}

TEST_CASE("the command line beats MUSTER_ which beats PET_, and only the winner is looked at") {
    const Environment both{{"PET_MAX_RESTARTS", "nonsense"}, {"MUSTER_MAX_RESTARTS", "2"}};
    CHECK(config_of({}, both).restarts_max == 2);
    CHECK(config_of({"--max-restarts", "3"}, both).restarts_max == 3);
    CHECK(config_of({}, {{"PET_MAX_RESTARTS", "5"}}).restarts_max == 5);
    CHECK(config_of({"--checkpoint-dir", "/a b/c"}, {}).checkpoint_dir == "/a b/c");
    CHECK(config_of({"--checkpoint-dir", "c"}, {}).checkpoint_dir == std::filesystem::absolute("c").string());
    CHECK(config_of({}, {}).stalled_restarts_max == 3);
    CHECK(holds(error_of({"t.py"}, {{"PET_MAX_RESTARTS", "x"}}), "PET_MAX_RESTARTS: got 'x'"));
    CHECK(config_of({"--nproc-per-node=2", "--nproc_per_node=3"}).workers_per_node == 3);
}

TEST_CASE("flags in the environment are numbers, as torchrun has them") {
    CHECK(
        config_of({"--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"}, {{"PET_STANDALONE", "1"}}).standalone);
    CHECK_FALSE(config_of({"--rdzv-backend=c10d", "--rdzv-endpoint=h:1"}, {{"PET_STANDALONE", "0"}}).standalone);
    CHECK(error_of({"t.py"}, {{"PET_STANDALONE", "yes"}}) == "muster: PET_STANDALONE: got 'yes'; accepted is 1 or 0\n");
}

TEST_CASE("a variable of ours that nothing reads is warned of, with the nearest known name and without its value") {
    const auto warnings_with = [](const Environment& environment) {
        return std::get<Launch>(parse_options({"t.py"}, environment)).warnings;
    };
    CHECK(warnings_with({{"MUSTER_NNODE", "hidden"}}) ==
          std::vector<std::string>{"MUSTER_NNODE is set, but muster has no such variable, so it has no effect; "
                                   "the nearest known one is MUSTER_NNODES"});
    const auto far = warnings_with({{"MUSTER_QQQQQQQQ", "1"}});
    REQUIRE(far.size() == 1);
    CHECK(holds(far[0], "unset it, or see muster --help"));
    CHECK(holds(warnings_with({{"MUSTER_SECRETS_FILE", ""}}).at(0), "MUSTER_SECRET_FILE"));
    CHECK(holds(warnings_with({{"MUSTER_STANDALON", "1"}}).at(0), "MUSTER_STANDALONE"));
    CHECK(holds(warnings_with({{"MUSTER_STORE_PROT", "1"}}).at(0), "MUSTER_STORE_PORT"));
    // Options', the runtime's, those of a worker in which a launcher runs, and those of tests.
    CHECK(warnings_with({{"MUSTER_NNODES", "1"},
                         {"MUSTER_LOG_LEVEL", "info"},
                         {"MUSTER_TRANSPORT", "tcp"},
                         {"MUSTER_AGENT_SOCKET", "x"},
                         {"MUSTER_ROUND", "0"},
                         {"MUSTER_SNAPSHOTS", "x"},
                         {"MUSTER_TORCH_SOCKET", "x"},
                         {"MUSTER_TEST_PYTHON", "x"},
                         {"MUSTER_STANDIN_GPUS", "2"},
                         {"MUSTERD", "x"},
                         {"MUSTER", "x"}})
              .empty());
}

TEST_CASE("everything after the program is the program's, word for word") {
    const auto parsed =
        parse_options({"--nproc-per-node", "2", "train.py", "--nproc-per-node", "9", "--", "-t3", "x"}, {});
    const auto& config = std::get<Launch>(parsed).config;
    CHECK(config.script == "train.py");
    CHECK(config.workers_per_node == 2);
    CHECK(config.arguments == std::vector<std::string>{"--nproc-per-node", "9", "--", "-t3", "x"});
}

TEST_CASE("two dashes end the options") {
    const auto parsed = parse_options({"--nproc-per-node=2", "--", "--odd-name.py", "-a"}, {});
    CHECK(std::get<Launch>(parsed).config.script == "--odd-name.py");
    CHECK(std::get<Launch>(parsed).config.arguments == std::vector<std::string>{"-a"});
}

TEST_CASE("an abbreviation counts when it fits one option, and torchrun's option wins over ours") {
    CHECK(config_of({"--nproc", "2"}).workers_per_node == 2);
    CHECK(config_of({"--rdzv-b", "c10d"}).backend == Backend::c10d);
    CHECK(config_of({"--log-", "/d"}).log_dir == "/d");  // --log-level is ours
    CHECK(config_of({"--stan"}).standalone);
    CHECK(config_of({"--spar=1", "--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"}).spares == 1);
    CHECK(holds(error_of({"--rdzv", "x", "t.py"}), "is ambiguous; it could be --rdzv-backend, --rdzv-endpoint"));
    CHECK(holds(error_of({"--duplicate", "x", "t.py"}), "--duplicate-stdout-filters, --duplicate-stderr-filters"));
}

TEST_CASE("short forms can be glued") {
    CHECK(config_of({"-t3"}).tee.all == StreamMask::both);
    CHECK(config_of({"-r=1"}).redirects.all == StreamMask::out);
    CHECK(config_of({"-r", "0:1,12:3"}).redirects.by_local_rank.at(12) == StreamMask::both);
    const auto both = config_of({"-mt2"});
    CHECK(both.entry == EntryKind::module);
    CHECK(both.tee.all == StreamMask::err);
}

TEST_CASE("a value may be a negative number but not another option") {
    CHECK(holds(error_of({"--max-restarts", "-1", "t.py"}), "--max-restarts: got '-1'"));
    CHECK(holds(error_of({"--rdzv-id", "--role", "x", "t.py"}),
                "--rdzv-id: a value is missing, got the option '--role'"));
    CHECK(holds(error_of({"--rdzv-id"}), "--rdzv-id: a value is missing, got nothing"));
    CHECK(config_of({"--rdzv-id", "-5", "--rdzv-backend=c10d"}).job == "-5");
    CHECK(config_of({"--role=--x"}).role == "--x");
}

TEST_CASE("help and version are given at once, also before a mistake") {
    CHECK(std::holds_alternative<ShowText>(parse_options({"--help", "--nonsense"}, {})));
    CHECK(std::holds_alternative<ShowText>(parse_options({"-h"}, {})));
    const auto version = std::get<ShowText>(parse_options({"--version"}, {})).text;
    CHECK(version.starts_with("muster "));
    for (const auto* fact : {"\n  commit ", "\n  compiler ", "\n  libraries  Boost 1.", "OpenSSL 3.", "\n  parts "})
        CHECK(holds(version, fact));
    CHECK(holds(error_of({"--nonsense", "--help"}), "--nonsense"));
    const auto help = std::get<ShowText>(parse_options({"--help"}, {{"MUSTER_LEASE", "7"}})).text;
    for (const auto& row : option_table()) CHECK(holds(help, cat("--", row.name)));
    CHECK(holds(help, "[MUSTER_LEASE=7]"));
    CHECK(holds(help, "[1:1]"));
}

TEST_CASE("errors are one line that names the option, the value, what is accepted and the nearest") {
    CHECK(error_of({"--nproc-per-nod=2x", "--x"}).starts_with("muster: "));
    CHECK(error_of({"--nproc-per-nude=2", "t.py"}) ==
          "muster: unknown option '--nproc-per-nude'; the nearest known option is --nproc-per-node (muster --help "
          "lists all)\n");
    CHECK(error_of({"--nprocs=2", "t.py"}).find("the nearest known option is --nproc-per-node ") != std::string::npos);
    CHECK(error_of({"--restarts=2", "t.py"}).find("the nearest known option is --max-restarts ") != std::string::npos);
    CHECK(error_of({"--nnodes=2:1", "t.py"}) ==
          "muster: --nnodes: got '2:1'; accepted is N or MIN:MAX with 0 < MIN <= MAX <= 20000, e.g. 2 or 1:4\n");
    CHECK(holds(error_of({"--start-method=sporn", "t.py"}), "spawn, fork or forkserver (nearest: spawn)"));
    CHECK(holds(error_of({"--standalone=1", "t.py"}), "--standalone: got '1', but it takes no value"));
    CHECK(holds(error_of({"--nproc-per-node=2"}), "the program is missing"));
    CHECK(holds(error_of({}), "the program is missing"));
    for (const auto& words :
         std::vector<std::vector<std::string>>{{"--nnodes=x", "t.py"}, {"--nope"}, {"-q"}, {"--rdzv-conf=a", "t.py"}}) {
        const auto line = error_of(words);
        CHECK(std::count(line.begin(), line.end(), '\n') == 1);
    }
}

TEST_CASE("a suggestion is made only where one is near, and never for a number") {
    CHECK(error_of({"-x", "t.py"}) == "muster: unknown option '-x' (muster --help lists all)\n");
    CHECK(error_of({"--zzzzz", "t.py"}) == "muster: unknown option '--zzzzz' (muster --help lists all)\n");
    CHECK(error_of({"--nproc-per-node=999999", "t.py"}) ==
          "muster: --nproc-per-node: got '999999'; accepted is a number from 1 to 4096, auto, gpu or cpu\n");
    CHECK(holds(error_of({"--nproc-per-node=gpus", "t.py"}), "(nearest: gpu)"));
    CHECK_FALSE(holds(error_of({"--rdzv-backend=foo", "t.py"}), "nearest"));
    CHECK_FALSE(holds(error_of({"--rdzv-conf", "color=5", "t.py"}), "nearest"));
}

TEST_CASE("values outside of what an option takes are refused") {
    const std::vector<std::pair<std::string, std::string>> refused{{"--nnodes", "0"},
                                                                   {"--nnodes", "1:2:3"},
                                                                   {"--nnodes", ""},
                                                                   {"--nproc-per-node", "0"},
                                                                   {"--nproc-per-node", "many"},
                                                                   {"--nproc-per-node", "xpu"},
                                                                   {"--max-restarts", "1.5"},
                                                                   {"--max-restarts", "10/1"},
                                                                   {"--max-restarts", "10/h"},
                                                                   {"--max-restarts", "10/0s"},
                                                                   {"--max-restarts", "10/-1h"},
                                                                   {"--max-restarts", "10/1w"},
                                                                   {"--max-restarts", "10/31d"},
                                                                   {"--max-restarts", "/1h"},
                                                                   {"--max-restarts", "1/2/3h"},
                                                                   {"--node-failures", "3"},
                                                                   {"--node-failures", "3/2"},
                                                                   {"--node-failures", "0/2"},
                                                                   {"--node-failures", "1/101"},
                                                                   {"--preemption-signal", "SIGNONE"},
                                                                   {"--preemption-signal", "9"},
                                                                   {"--preemption-signal", "SIGSTOP"},
                                                                   {"--preemption-signal", "0"},
                                                                   {"--monitor-interval", "0"},
                                                                   {"--monitor-interval", "nan"},
                                                                   {"--rdzv-backend", "zeus"},
                                                                   {"--rdzv-backend", "etcd-v3"},
                                                                   {"--logs-specs", "mine"},
                                                                   {"--event-log-handler", "mine"},
                                                                   {"--numa-binding", "cores"},
                                                                   {"--omp", "4"},
                                                                   {"--torch-backend", "gloo"},
                                                                   {"-r", "4"},
                                                                   {"-t", "0:9"},
                                                                   {"-t", "a:1"},
                                                                   {"--local-ranks-filter", "0,x"},
                                                                   {"--master-port", "70000"},
                                                                   {"--store-port", "9-8"},
                                                                   {"--lease", "0"},
                                                                   {"--shutdown-timeout", "-1"},
                                                                   {"--node-rank", "-1"},
                                                                   {"--spares", "-2"},
                                                                   {"--exit-code", "bash"},
                                                                   {"--log-level", "loud"},
                                                                   {"--prefix", "both"},
                                                                   {"--rdzv-conf", "join_timeout=x"},
                                                                   {"--rdzv-conf", "join_timeout"},
                                                                   {"--rdzv-conf", "join_timeot=5"},
                                                                   {"--rdzv-conf", "is_host=maybe"},
                                                                   {"--rdzv-conf", "store_type=file"},
                                                                   {"--rdzv-id", ""}};
    for (const auto& [option, value] : refused) {
        INFO(option << " " << value);
        const auto line = error_of({option, value, "t.py"});
        CHECK(line != "no error");
        CHECK(holds(line, "accepted"));
    }
    CHECK(holds(error_of({"--rdzv-conf", "join_timeot=5", "t.py"}), "nearest is 'join_timeout'"));
    CHECK(holds(error_of({"--rdzv-backend", "etcd-v3", "t.py"}), "nearest: etcd-v2"));
}

TEST_CASE("another job of the same nodes meets where this one does") {
    const auto meeting = [](std::vector<std::string> words, const Environment& environment) {
        return std::get<Launch>(parse_options(words, environment)).meeting_options;
    };
    using Words = std::vector<std::string>;
    CHECK(meeting({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint", "h:1", "--rdzv-id=x", "--max-restarts=3",
                   "-m", "--insecure", "--log-dir=/tmp/l", "train"},
                  {{"MUSTER_STORE_PORT", "29600"}, {"PET_NODE_RANK", "1"}, {"MUSTER_REPORT", "r"}}) ==
          Words{"--from=none", "--node-rank=1", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--store-port=29600",
                "--insecure"});
    CHECK(meeting({"--nnodes=2", "--rdzv-endpoint=h:1", "--rdzv-conf=is_host=1,timeout=5", "train.py"}, {}) ==
          Words{"--from=none", "--rdzv-conf=is_host=1,timeout=5", "--rdzv-endpoint=h:1"});
    const auto names = option_variables();
    for (const char* name : {"MUSTER_HEALTH_CHECK", "PET_NNODES", "MUSTER_REPORT"})
        CHECK(std::ranges::find(names, name) != names.end());
}
