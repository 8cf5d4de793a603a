#include "launcher/commands/commands.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "agent/doctor/doctor_report.h"
#include "agent/doctor/links_svg.h"
#include "launcher/commands/command_words.h"
#include "launcher/host/environment_probe.h"
#include "launcher/host/node_doctor.h"
#include "launcher/host/node_pairs.h"
#include "launcher/options/job_file.h"
#include "launcher/options/options.h"
#include "launcher/report/command_output.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/system/absolute_path.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr int could_not_look = 3;
constexpr int nodes_max = 8000;

constexpr std::string_view doctor_usage =
    "usage: muster doctor [--level 3] [--dir DIR] [--skip NAME] [--limits FILE] [--json | --nagios]\n"
    "       muster doctor explain [NAME]\n"
    "Looks for faults of this node: names, network, RDMA, limits, PCI, GPUs, settings, versions, disks. It takes at "
    "most\n"
    "5 s, needs no root and no daemon, and changes nothing. Each finding is one line: what, measured, expected, why, "
    "and\n"
    "what mends it. `explain` describes a check, a look, a limit or a variable of NCCL, gloo or PyTorch; without NAME "
    "it lists "
    "all.\n"
    "\n"
    "  --level 3      also tests each GPU that nobody uses: checksums of products, copies, memory; about 3 s for each\n"
    "  --dir DIR      also looks at this directory, e.g. that of the checkpoints; may be repeated\n"
    "  --skip NAME    leaves a check or a whole look out; may be repeated, or a list with commas\n"
    "  --limits FILE  other limits, as lines NAME = NUMBER\n"
    "  --json         the findings as JSON\n"
    "  --nagios       the findings as the output of a Nagios plugin\n"
    "  --help         this text\n"
    "\n"
    "Between nodes: run the same command on every node. Pairs of nodes connect and move messages, then all together; a "
    "bad\n"
    "node, a bad path and a node that does not come are named everywhere. Under srun or Open MPI's mpirun --level 2 "
    "is\n"
    "enough; with MPICH's add -- --rdzv-endpoint HOST.\n"
    "  --nnodes N     the number of nodes\n"
    "  --rdzv-endpoint HOST[:PORT]   where the nodes meet\n"
    "  --level 2      the same with what the scheduler tells\n"
    "  --rdzv-id ID   the job's name (doctor)\n"
    "  --wait SECONDS how long to wait for the nodes (30)\n"
    "  --out DIR      writes passing_nodes.txt and failing_nodes.txt\n"
    "  --plot FILE.svg   draws the links\n"
    "  -- OPTIONS     further options of muster, e.g. -- --insecure\n"
    "\n"
    "Exit codes: 0 no warning, 1 warning, 2 critical, 3 could not look (also: wrong usage).\n";

struct DoctorWords {
    DoctorOrder order;
    bool json = false;
    bool nagios = false;
    int level = 1;
    bool between_nodes = false;
    PairsOrder pairs;
    std::string out_directory;
    std::string plot;
};

/// Those of the node, and those of the test between nodes.
std::vector<WordOption> doctor_options(DoctorWords& words) {
    const auto number = [&](std::string_view name, int least, int most, int& into) {
        const auto take = [=, &into](const std::string& value) -> Result<void> {
            if (parse_number(value, into) && into >= least && into <= most) return {};
            return wrong(cat(name, ": got '", value, "'; accepted is a number from ", least, " to ", most));
        };
        return WordOption{name, take};
    };
    const auto take_dir = [&](const std::string& value) {
        return words.order.directories.push_back(absolute_path(value)), Result<void>();
    };
    const auto take_skip = [&](const std::string& value) {
        for (const auto name : split(value, ',')) words.order.skip.emplace(trim(name));
        return Result<void>();
    };
    const auto take_limits = [&](const std::string& path) -> Result<void> {
        const auto text = read_limits_file(path);
        if (!text) return wrong(cat("--limits: ", text.error().context));
        words.order.limits = *agent::parse_limits(*text);
        return {};
    };
    return {{"--dir", take_dir},
            {"--skip", take_skip},
            {"--limits", take_limits},
            {"--out", &words.out_directory},
            {"--plot", &words.plot},
            {"--rdzv-endpoint", &words.pairs.endpoint},
            {"--rdzv-id", &words.pairs.job},
            number("--nnodes", 2, nodes_max, words.pairs.node_count),
            number("--wait", 1, 3600, words.pairs.wait_seconds),
            number("--level", 1, 3, words.level),
            {"--json", &words.json},
            {"--nagios", &words.nagios}};
}

Result<DoctorWords> read_doctor_words(const std::vector<std::string>& arguments) {
    DoctorWords words;
    const auto end = std::ranges::find(arguments, "--");
    if (end != arguments.end()) words.pairs.muster_options.assign(end + 1, arguments.end());
    const auto others = MUSTER_TRY(read_words("doctor", {arguments.begin(), end}, doctor_options(words)));
    if (!others.empty()) return wrong(cat("unknown word '", others.front(), "' (see muster doctor --help)"));
    if (words.json && words.nagios) return wrong("write --json or --nagios, not both");
    if (words.level == 3) words.order.gpu_tests = agent::GpuTests::taken;
    words.between_nodes = words.level == 2 || words.pairs.node_count > 0;
    if (words.pairs.endpoint.empty() != (words.pairs.node_count == 0))
        return wrong("--nnodes and --rdzv-endpoint belong together; a scheduler's nodes are tested by --level 2");
    if (!words.between_nodes && (!words.out_directory.empty() || !words.plot.empty()))
        return wrong("--out and --plot show the nodes: write --nnodes and --rdzv-endpoint, or --level 2");
    if (const auto known = agent::check_skip_names(words.order.skip); !known)
        return wrong(cat("--skip: ", known.error().context));
    return words;
}

/// Without --nnodes: takes the number of nodes that the scheduler, variables and the options behind -- tell the job of
/// the test. It stays open where they tell a range, or settings of the rendezvous that an own number would override;
/// what is wrong the job reports. Returns one line if this is a surplus task of its host, else nothing.
std::string take_node_count(PairsOrder& pairs, const Environment& environment) {
    const auto words = pairs_job_words(pairs);
    const auto file = named_job_file(words);
    const auto parsed = parse_options(words, environment, file ? *file : JobFile{}, read_file("/etc/hosts"));
    if (const auto* nothing = std::get_if<NothingToDo>(&parsed)) return nothing->line;
    const auto* launch = std::get_if<Launch>(&parsed);
    if (launch == nullptr || launch->config.nodes_min != launch->config.nodes_max) return {};
    const auto is_conf = [](const auto& value) { return value.first->name == "rdzv-conf"; };
    const bool has_conf = environment.contains("MUSTER_RDZV_CONF") || environment.contains("PET_RDZV_CONF") ||
                          (file && std::ranges::any_of(file->values, is_conf));
    const auto count = static_cast<int>(launch->config.nodes_max);
    if (count == 1 || (launch->config.backend == Backend::c10d && !has_conf)) pairs.node_count = count;
    return {};
}

int explain_names(const std::vector<std::string>& arguments) {
    if (arguments.size() == 1) return answer("doctor", agent::explain_all());
    if (arguments.size() > 2) return print_error("doctor", could_not_look, "write: muster doctor explain [NAME]");
    const auto text = agent::explain(arguments[1]);
    return text ? answer("doctor", *text) : print_error("doctor", could_not_look, text.error().context);
}

/// --out and --plot: all that can be written. All nodes may write to the same place.
Result<void> write_pictures(const DoctorWords& words, const agent::Look& nodes) {
    Result<void> all;
    const auto write = [&all](const std::string& path, const std::string& text) {
        if (auto done = write_file(path, text); !done && all) all = std::move(done);
    };
    if (!words.plot.empty()) write(words.plot, agent::links_svg(nodes));
    if (words.out_directory.empty()) return all;
    write(words.out_directory + "/passing_nodes.txt", agent::hosts_of(nodes, true));
    write(words.out_directory + "/failing_nodes.txt", agent::hosts_of(nodes, false));
    return all;
}

agent::Finding unwritten(const Error& why) {
    return {.check = "nodes",
            .level = agent::Level::unknown,
            .what = "--out and --plot",
            .measured = why.context,
            .expected = "files of this run",
            .why = "A file that is there may be of an earlier run.",
            .mend = "name a place with room where this user may write"};
}

}  // namespace

int run_doctor(const std::vector<std::string>& arguments, const Environment& environment) {
    if (asks_for_help(arguments)) return answer("doctor", doctor_usage);
    if (!arguments.empty() && arguments.front() == "explain") return explain_names(arguments);
    auto words = read_doctor_words(arguments);
    if (!words) return print_error("doctor", could_not_look, words.error().context);
    if (words->between_nodes && !has_meeting(words->pairs, environment))
        return print_error("doctor", could_not_look,
                           "--level 2: no scheduler (srun, mpirun, Kubernetes) tells which nodes to test; write "
                           "--nnodes N --rdzv-endpoint HOST on every node");
    if (words->between_nodes && words->pairs.node_count == 0)
        if (const auto surplus = take_node_count(words->pairs, environment); !surplus.empty()) {
            std::fputs(surplus.c_str(), stderr);
            return exit_codes::success;
        }
    if (const auto temporary = value_or_empty(environment, "TMPDIR"); !temporary.empty())
        words->pairs.directory = temporary;
    words->order.directories.push_back(words->pairs.directory);
    words->pairs.limits = words->order.limits;
    const auto before = std::chrono::steady_clock::now();
    auto facts = look_at_node(words->order, environment);
    if (words->between_nodes) facts.looks["nodes"] = look_between_nodes(words->pairs);
    const auto written = write_pictures(*words, facts.look("nodes"));
    const auto took = std::chrono::steady_clock::now() - before;
    agent::DoctorReport report{
        .host = host_name(),
        .version = MUSTER_VERSION,
        .findings = agent::examine(facts, words->order.limits, words->order.skip),
        .check_count = agent::check_count(facts, words->order.skip),
        .took_ms = static_cast<std::size_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count())};
    if (!written) report.findings.push_back(unwritten(written.error()));
    const auto text = words->json     ? agent::doctor_json(report)
                      : words->nagios ? agent::doctor_nagios(report)
                                      : agent::doctor_text(report);
    return answer("doctor", text, agent::doctor_exit_code(report.findings));
}

}  // namespace muster::launcher
