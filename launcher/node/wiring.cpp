#include "launcher/node/wiring.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "agent/diagnosis/error_file.h"
#include "agent/supervision/failure_report.h"
#include "agent/supervision/report_file.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/status_command.h"
#include "launcher/config/environment.h"
#include "launcher/host/checkpoint_place.h"
#include "launcher/host/environment_probe.h"
#include "launcher/host/gpu_count.h"
#include "launcher/host/open_files.h"
#include "launcher/host/placement.h"
#include "launcher/node/gpu_job_map.h"
#include "launcher/node/job_access.h"
#include "launcher/node/job_preflight.h"
#include "launcher/node/node_run.h"
#include "launcher/node/service_unit.h"
#include "launcher/node/torch_package.h"
#include "launcher/options/entry.h"
#include "launcher/options/options.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "launcher/report/report_writer.h"
#include "launcher/scheduler/kubernetes_pod.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/console_writer.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/system/absolute_path.h"
#include "rendezvous/base/system/standard_streams.h"
#include "rendezvous/base/system/start_up_signals.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

void say_last(std::string_view text) {
    write_log_on_thread();  // also where a refusal comes first
    print_notice(text);
    flush_log(last_flush_max);
}

int refuse(int code, std::string_view why, ExitCodeStyle style) {
    say_last(cat("muster: ", why, "\n"));
    return exit_code(code, style);
}

/// mpirun's first process hosts the rendezvous. The others expect it on the host where mpirun runs.
std::string first_host_trouble(const std::vector<std::string>& addresses) {
    // All addresses must match: two hosts may share one address, that of a bridge within each.
    if (std::ranges::all_of(addresses, [](const auto& one) { return is_own_host({}, {one}); })) return {};
    return cat("--rdzv-endpoint is missing: mpirun runs on ", addresses.front(),
               " and its first process on another host, so the other processes cannot know the endpoint; write "
               "--rdzv-endpoint HOST:PORT with one of the hosts, or --from=none if each process runs its own job");
}

std::string log_dir_trouble(const LaunchConfig& config) {
    struct stat facts {};
    if (config.log_dir.empty() || ::stat(config.log_dir.c_str(), &facts) != 0 || S_ISDIR(facts.st_mode)) return {};
    return cat(
        "--log-dir: got '", config.log_dir,
        "', which is not a directory; accepted is a directory, which is created if missing, or /dev/null for no files");
}

std::string checkpoint_trouble(const LaunchConfig& config) {
    auto checked = check_checkpoint_place("--checkpoint-dir", config.checkpoint_dir);
    if (checked) checked = check_checkpoint_place("--checkpoint-local-dir", config.checkpoint_local_dir);
    return checked ? std::string() : checked.error().context;
}

/// The absolute path of --report or --events, because the working directory may change. Empty: no file.
std::string named_file_path(const LaunchConfig& config, const std::string& file) {
    if (file.empty()) return {};
    const auto path = report_path(file, {.host = host_name(), .job = shown_job(config), .pid = ::getpid()});
    return absolute_path(path.value_or(file));
}

std::string report_problem(const std::string& path) {
    if (path.empty()) return {};
    const auto checked = check_report_path(path);
    return checked ? std::string() : cat("--report: ", checked.error().context);
}

/// Runs last. A failure is logged and does not change the exit code.
void leave_report(const std::string& path, std::string_view text) {
    if (path.empty() || text.empty()) return;
    if (const auto written = write_report(path, text); !written)
        say_last(cat("muster: ", written.error().context, "\n"));
}

/// The error file for the process that started this launcher, as torchrun writes it: the worker's own error file if it
/// is on this host. Empty if no worker failed.
std::string error_file_of(const agent::Ending& ending, const std::string& host, std::string_view text) {
    const auto* failed = std::get_if<agent::JobFailed>(&ending);
    if (failed == nullptr || !failed->report.verdict.first) return {};
    const auto& first = *failed->report.verdict.first;
    if (saved_and_left(first.end)) return {};
    const bool is_here = first.host == host && !first.error_file.empty();
    return agent::launcher_error_file(
        is_here ? read_start_of_file(first.error_file, agent::error_file_bytes_max + 1) : std::string(), first, text);
}

/// Under nohup SIGHUP is ignored from the start and stays ignored, unless the user named it.
void leave_ignored_hang_up(LaunchConfig& config) {
    struct sigaction at_start {};
    const bool ignored = ::sigaction(SIGHUP, nullptr, &at_start) == 0 && at_start.sa_handler == SIG_IGN;
    const bool asked_for = config.handled_signal_names != LaunchConfig{}.handled_signal_names;
    if (ignored && !asked_for) std::erase(config.handled_signals, SIGHUP);
}

void log_known_facts(const Launch& launch, const Environment& environment) {
    for (const auto& warning : launch.warnings) log(LogLevel::warning, warning);
    for (const auto& hint : absent_rank_hints(launch.config)) log(LogLevel::warning, hint);
    if (const auto hint = single_worker_hint(launch.config, environment); !hint.empty()) log(LogLevel::warning, hint);
    if (const auto hint = slurm_cpu_hint(environment, launch.config.workers_per_node, usable_cpu_count());
        !hint.empty())
        log(LogLevel::warning, hint);
    if (launch.config.workers_per_node > 1 && launch.config.threads.empty() && !lookup(environment, "OMP_NUM_THREADS"))
        log(LogLevel::info,
            "OMP_NUM_THREADS is not set: each worker gets 1, to avoid overloading the node; set it, or write --omp "
            "auto");
}

void open_log(const LaunchConfig& config, const Environment& environment) {
    set_log_level(config.log_level);
    set_log_name(cat("muster[", host_name(), "]"));
    if (open_journal("muster", value_or_empty(environment, "JOURNAL_STREAM")))
        set_journal_field("MUSTER_JOB", shown_job(config));
}

/// What a change of the configuration or of the unit alone can help; takes the unit's place.
Result<void> check_configuration(ServiceUnit& unit, const LaunchConfig& config, Environment& environment) {
    const bool encrypts = config.wire_security == "encrypt";
    if (config.key.empty() && !config.awaits_key && has_other_nodes(config) && (encrypts || config.store_door)) {
        return Error{Errc::invalid_argument,
                     cat(encrypts ? "--wire-security encrypt" : "--store-door",
                         " needs a key that all nodes of the job have: run `muster key` on a shared "
                         "home directory, or set MUSTER_SECRET_FILE or MUSTER_KEY on every node")};
    }
    if (auto user = unit.check_user(::geteuid(), config.allow_root); !user) return user;
    if (auto offered = offer_torch_package(config, environment); !offered) {
        if (!config.torch_backend.empty()) return offered;
        log(LogLevel::warning, offered.error().context);  // training needs no steps
    }
    return config.named_job == "none" ? Result<void>() : unit.claim(config.named_job);
}

Result<agent::GuardianHandle> start_guardian(const LaunchConfig& config, std::shared_ptr<GpuJobMap> gpu_jobs) {
    // The guardian holds the key too, in the agent's death notice. As read_private_file does.
    if (config.awaits_key) ::prctl(PR_SET_DUMPABLE, 0);
    return agent::fork_guardian(guardian_config(config, std::move(gpu_jobs)));
}

constexpr Duration job_map_limit = 5s;  // for a file that no job needs

/// The numbers of the workers' GPUs on this host.
Result<std::vector<std::size_t>> gpu_numbers(const LaunchConfig& config, const Environment& environment) {
    const auto devices = MUSTER_TRY(ask_for_gpus(job_map_limit));
    // A library in NVML's place tells of another host.
    const auto count = lookup(environment, "MUSTER_NVML_LIBRARY") ? 0 : host_gpu_count();
    if (devices.size() < count)
        return Error{Errc::unsupported, cat("only ", devices.size(), " of the host's ", count,
                                            " GPUs are visible here, so their numbers on the host are not known; let "
                                            "the scheduler's prolog write these files")};
    return gpus_of_workers(devices, lookup(environment, "CUDA_VISIBLE_DEVICES"), config.workers_per_node);
}

/// No job fails for it.
void add_gpu_jobs(GpuJobMap& map, const LaunchConfig& config, const Environment& environment) {
    if (config.gpu_job_dir.empty() || ::access(config.gpu_job_dir.c_str(), F_OK) != 0) return;
    if (!has_gpu_driver(environment)) return;
    const auto gpus = gpu_numbers(config, environment);
    const auto added = gpus ? map.add(*gpus) : Result<void>(gpus.error());
    if (!added)
        log(LogLevel::warning, "--hpc-job-mapping-dir: ", added.error().context,
            "; dcgm-exporter does not know the job of this node's GPUs");
}

/// How many workers this node has, on which devices and CPUs.
Result<void> resolve_workers(LaunchConfig& config, const Environment& environment, GpuJobMap& gpu_jobs) {
    if (auto counted = resolve_worker_count(config, environment); !counted) return counted.error();
    if (auto devices = check_visible_devices(config, environment); !devices) return devices.error();
    if (auto placed = resolve_placement(config, environment); !placed) return placed.error();
    add_gpu_jobs(gpu_jobs, config, environment);
    return {};
}

int launch(Launch launch, Environment environment) {
    auto unit = ServiceUnit::take(environment, ::getpid(), ::getppid());
    auto& config = launch.config;
    const auto style = config.exit_codes;
    leave_ignored_hang_up(config);
    open_log(config, environment);
    if (const auto checked = check_endpoint(config, scheduler_facts(environment)); !checked)
        return refuse(exit_codes::usage, checked.error().context, style);
    const auto report_file = named_file_path(config, config.report);
    auto trouble = first_host_trouble(launch.own_addresses);
    if (trouble.empty()) trouble = log_dir_trouble(config);
    if (trouble.empty()) trouble = report_problem(report_file);
    if (!trouble.empty()) return refuse(exit_codes::usage, trouble, style);
    if (config.etcd) {
        auto login = rendezvous::read_etcd_login(config.etcd_login_file);
        if (!login) return refuse(exit_codes::usage, cat("MUSTER_ETCD_LOGIN_FILE: ", login.error().context), style);
        config.etcd->login = *std::move(login);
    }
    auto entry = resolve_entry(config, environment);
    if (const auto* wrong = std::get_if<NotRunnable>(&entry)) return refuse(wrong->exit_code, wrong->why, style);
    const auto access = take_key(config, environment);
    if (!access) return refuse(exit_codes::configuration, access.error().context, style);
    launch.warnings.insert(launch.warnings.end(), access->begin(), access->end());

    if (const auto checked = check_configuration(unit, config, environment); !checked)
        return refuse(exit_codes::configuration, checked.error().context, style);
    // Before any other fork, thread or open file (guardian.h).
    const auto gpu_jobs = std::make_shared<GpuJobMap>(config.gpu_job_dir, shown_job(config));
    auto guardian = start_guardian(config, gpu_jobs);
    if (!guardian) return refuse(exit_codes::internal, guardian.error().context, style);
    write_log_on_thread();
    // A write of the launcher to a closed terminal must not end the job. Workers start with default signal actions.
    std::signal(SIGPIPE, SIG_IGN);
    if (const auto resolved = resolve_workers(config, environment, *gpu_jobs); !resolved) {
        const bool is_nodes_trouble = resolved.error().code == Errc::timed_out || resolved.error().code == Errc::io;
        return refuse(is_nodes_trouble ? exit_codes::internal : exit_codes::usage, resolved.error().context, style);
    }
    if (const auto enough = check_open_files(config); !enough)
        return refuse(exit_codes::internal, enough.error().context, style);
    if (const auto why = checkpoint_trouble(config); !why.empty()) return refuse(exit_codes::configuration, why, style);
    auto events = NodeEvents::open(config, named_file_path(config, config.events), host_name());
    if (!events) return refuse(exit_codes::usage, cat("--events: ", events.error().context), style);
    log_known_facts(launch, environment);
    config.preflight_fault = tell_preflight(test_before_job(launch, environment), **events);
    // For the user, and for a program that has started this launcher.
    const auto leave_reports = [&](const std::string& report) {
        leave_report(report_file, report);
        leave_report(std::string(value_or_empty(environment, "MUSTER_CALLER_REPORT")), report);
    };
    NodeRun run(config, std::get<Entry>(entry), environment, unit, **events);
    int code = exit_codes::internal;
    std::string text;
    const auto not_launched = run.run(std::move(*guardian), [&](const agent::Ending& ending) {
        const auto context = run.report_context();
        code = exit_code(ending, style, context.unsaved);
        text = agent::report(ending, context);
        (*events)->ended(code == exit_codes::success, agent::outcome(ending, context), text);
        leave_reports(agent::report_file(ending, context, code, text));
        leave_report(std::string(value_or_empty(environment, "TORCHELASTIC_ERROR_FILE")),
                     error_file_of(ending, context.host, text));
    });
    if (not_launched) {
        (*events)->ended(false, "not_launched", not_launched->why);
        code = refuse(not_launched->exit_code, not_launched->why, style);
        leave_reports(agent::report_file(run.report_context(), code, not_launched->why));
    }
    say_last(text);
    return code;
}

struct Command {
    std::string_view name;
    int (*run)(const std::vector<std::string>& arguments, const Environment& environment);
};
constexpr Command commands[] = {
    {"flight", [](const auto& arguments, const auto&) { return run_flight(arguments); }},
    {"logs", run_logs},
    {"checkpoint", [](const auto& arguments, const auto&) { return run_checkpoint(arguments); }},
    {"doctor", run_doctor},
    {"drain", run_drain},
    {"fault", run_fault},
    {"status", run_status},
    {"top", run_top},
    {"key", run_key},
    {"torch-build", [](const auto& arguments, const auto& own) { return run_torch_build(arguments, own); }},
    {"config", [](const auto& arguments, const auto& own) { return run_config(arguments, own); }},
};

}  // namespace

int run(int argc, const char* const* argv) {
    survive_file_size_limit();  // workers start with default signal actions
    open_missing_standard_streams();
    const auto environment = process_environment();
    const auto* const command = std::ranges::find(commands, std::string_view(argc > 1 ? argv[1] : ""), &Command::name);
    if (command != std::end(commands)) {
        end_start_up_signals();  // signals end a command by default
        return command->run({argv + 2, argv + argc}, environment);
    }
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    const auto file = named_job_file(words);
    if (!file) return refuse(exit_codes::usage, file.error().context, {});
    const auto hosts_file = is_kubernetes_pod(environment) ? read_file("/etc/hosts") : std::string();
    auto parsed = parse_options(words, environment, *file, hosts_file);
    if (const auto* text = std::get_if<ShowText>(&parsed)) return answer({}, text->text);
    if (const auto* nothing = std::get_if<NothingToDo>(&parsed)) {
        say_last(nothing->line);
        return exit_codes::success;
    }
    if (const auto* wrong = std::get_if<UsageError>(&parsed)) {
        say_last(wrong->line);
        return exit_codes::usage;
    }
    auto& wanted = std::get<Launch>(parsed);
    if (const auto taken = take_preflight_rules(wanted.config); !taken)
        return refuse(exit_codes::usage, taken.error().context, wanted.config.exit_codes);
    return launch(std::move(wanted), environment);
}

}  // namespace muster::launcher
