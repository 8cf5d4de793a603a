#include "launcher/commands/commands.h"

#include "launcher/host/environment_probe.h"
#include "launcher/options/entry.h"
#include "launcher/options/job_file.h"
#include "launcher/options/options.h"
#include "launcher/report/command_output.h"
#include "launcher/report/exit_code.h"
#include "rendezvous/base/kernel/read_file.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view config_usage =
    "usage: muster config check FILE\n"
    "Validates FILE, the configuration of muster --config or of a unit muster-agent@JOB.service: keys, values,\n"
    "contradictions, the program and ports.\n";

/// Ports below this one need a privilege.
int first_free_port() {
    int port = 1024;
    (void)parse_number(trim(read_file("/proc/sys/net/ipv4/ip_unprivileged_port_start")), port);
    return port;
}

bool may_take_low_ports() {
    constexpr int net_bind_service = 10;  // CAP_NET_BIND_SERVICE
    const auto status = read_file("/proc/self/status");
    const auto at = status.find("CapEff:\t");
    if (at == std::string::npos) return false;
    return (std::strtoull(status.c_str() + at + 8, nullptr, 16) >> net_bind_service & 1U) != 0;
}

std::string port_trouble(const LaunchConfig& config) {
    if (may_take_low_ports()) return {};
    const auto free_from = first_free_port();
    const auto low = [free_from](const PortRange& ports) { return ports.first > 0 && ports.first < free_from; };
    const bool store = low(config.store_ports);
    const bool own_endpoint =
        config.is_host.value_or(is_own_name(config.endpoint.host)) && low({config.endpoint.port, config.endpoint.port});
    if (!store && !own_endpoint) return {};
    return cat(store ? "store-port " : "rdzv-endpoint: port ", store ? config.store_ports.first : config.endpoint.port,
               " is below ", free_from,
               ", which needs root or CAP_NET_BIND_SERVICE: choose a higher port, or write "
               "AmbientCapabilities=CAP_NET_BIND_SERVICE into the unit");
}

/// What `muster --config FILE` would do with it.
int check(const std::string& path, const Environment& environment) {
    const auto file = named_job_file({"--config", path});
    if (!file) {
        std::string why = file.error().context;
        if (constexpr std::string_view option = "--config: "; why.starts_with(option)) why.erase(0, option.size());
        return print_error("config", exit_codes::usage, why);
    }
    for (const auto& line : file->complaints) print_error("config", exit_codes::usage, line);
    if (!file->complaints.empty()) return exit_codes::usage;
    auto parsed = parse_options({"--config", path}, environment, *file);
    if (const auto* wrong = std::get_if<UsageError>(&parsed)) {
        constexpr std::string_view ours = "muster: ";
        const auto line = trim(wrong->line).substr(ours.size());
        return print_error("config", exit_codes::usage, line.starts_with(path) ? line : cat(path, ": ", line));
    }
    const auto* launch = std::get_if<Launch>(&parsed);
    if (launch == nullptr) return print_error("config", exit_codes::usage, cat(path, ": starts nothing"));
    const auto& config = launch->config;
    for (const auto& warning : launch->warnings) print_error("config", 0, cat(path, ": warning: ", warning));
    const auto entry = resolve_entry(config, environment);
    if (const auto* wrong = std::get_if<NotRunnable>(&entry))
        return print_error("config", wrong->exit_code, cat(path, ": ", wrong->why));
    if (const auto trouble = port_trouble(config); !trouble.empty())
        return print_error("config", exit_codes::usage, cat(path, ": ", trouble));
    const bool is_file = config.entry == EntryKind::by_content || config.entry == EntryKind::run_path;
    if (is_file && !config.script.starts_with('/'))
        print_error("config", 0,
                    cat(path, ": warning: '", config.script,
                        "' is relative to the working directory of muster, which is / for a unit without "
                        "WorkingDirectory=: write the absolute path"));
    const auto nodes =
        config.nodes_min == config.nodes_max ? cat(config.nodes_max) : cat(config.nodes_min, " to ", config.nodes_max);
    return answer(
        "config",
        cat(path, " is valid: job ", config.standalone ? "on this node only" : cat("'", config.job, "'"), ", ", nodes,
            config.nodes_max == 1 ? " node" : " nodes", ", runs ", join(std::get<Entry>(entry).argv, " "), "\n"));
}

}  // namespace

int run_config(const std::vector<std::string>& arguments, Environment environment) {
    if (asks_for_help(arguments)) return answer("config", config_usage);
    if (arguments.size() != 2 || arguments[0] != "check")
        return print_error("config", exit_codes::usage, "write: muster config check FILE");
    // The unit of that name sets the job id so.
    auto name = base_name(arguments[1]);
    if (name.ends_with(".conf")) name.remove_suffix(5);
    if (!name.empty()) environment.try_emplace("MUSTER_RDZV_ID", name);
    return check(arguments[1], environment);
}

}  // namespace muster::launcher
