#include "launcher/options/launch_rules.h"

#include <algorithm>
#include <csignal>

#include "launcher/config/option_values.h"
#include "launcher/options/contradiction.h"
#include "launcher/options/rendezvous_conf.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using OptionError = std::optional<std::string>;

constexpr std::uint16_t c10d_port = 29'400;
constexpr std::uint16_t static_port = 29'500;
constexpr Duration keep_alive_interval = 5s;  // torchrun's defaults, used if only one of the two keys is given
constexpr std::int64_t keep_alive_attempts = 3;
constexpr Duration static_join_timeout = 900s;  // the default of torchrun's LaunchConfig

/// True if one node runs without an endpoint, by --standalone or because none was given (as torchrun since 2026).
bool is_standalone(const Settings& settings) {
    if (settings.standalone_asked) return true;
    return settings.config.backend == Backend::fixed && settings.endpoint_text.empty() && !settings.master_port &&
           settings.config.nodes_max == 1;
}

OptionError endpoint_missing(const Settings& settings) {
    if (settings.config.backend == Backend::fixed)
        return cat("--master-addr is missing, and with --nnodes ", settings.config.nodes_min, ":",
                   settings.config.nodes_max,
                   " the nodes need a common address; write --master-addr HOST [--master-port PORT] with the host of "
                   "--node-rank 0, the same on all nodes");
    return cat("--rdzv-endpoint is missing, and with --nnodes ", settings.config.nodes_min, ":",
               settings.config.nodes_max,
               " the nodes need a common endpoint; write --rdzv-endpoint HOST:PORT with one of the nodes (or a host "
               "that runs musterd), the same on all nodes");
}

OptionError set_endpoint(std::string_view option, std::string_view text, std::uint16_t default_port,
                         LaunchConfig& config) {
    auto endpoint = parse_endpoint(text, default_port);
    if (!endpoint) return cat(option, ": ", endpoint.error().context);
    const auto addresses = split(endpoint->host, ',');
    for (const auto address : addresses) {
        if (SocketAddress::from_numeric(std::string(address), 0)) continue;
        if (addresses.size() > 1)
            return cat(option, ": got '", text, "', where '", address,
                       "' is not a numeric address; accepted are HOST:PORT, several addresses of one host as "
                       "[A,B]:PORT, and several hosts as HOST:PORT,HOST:PORT");
        if (address.find(':') != std::string_view::npos)
            return cat(option, ": got '", text,
                       "', which is not an IPv6 address; accepted are HOST, HOST:PORT, [V6] and [V6]:PORT");
    }
    config.endpoint = *endpoint;
    return std::nullopt;
}

/// "a:1,[10.0.0.1,fd00::1]:2" in two: the commas within brackets are between addresses of one host.
std::vector<std::string_view> split_places(std::string_view text) {
    std::vector<std::string_view> places;
    std::size_t begin = 0;
    bool in_brackets = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '[' || text[at] == ']') in_brackets = text[at] == '[';
        if (text[at] != ',' || in_brackets) continue;
        places.push_back(text.substr(begin, at - begin));
        begin = at + 1;
    }
    places.push_back(text.substr(begin));
    return places;
}

OptionError choose_static_endpoint(Settings& settings) {
    auto& config = settings.config;
    if (!settings.endpoint_text.empty()) {
        if (const auto wrong = set_endpoint("--rdzv-endpoint", settings.endpoint_text, 0, config)) return wrong;
        if (config.endpoint.port == 0)
            return cat("--rdzv-endpoint: got '", settings.endpoint_text,
                       "', but the static back end needs a port that all nodes know; write HOST:PORT");
        return std::nullopt;
    }
    if (config.nodes_max > 1 && !settings.master_addr && !settings.master_port) return endpoint_missing(settings);
    auto host = settings.master_addr.value_or("127.0.0.1");
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const bool v6 = host.find(':') != std::string::npos;
    return set_endpoint("--master-addr",
                        cat(v6 ? "[" : "", host, v6 ? "]:" : ":", settings.master_port.value_or(static_port)),
                        static_port, config);
}

OptionError choose_c10d_endpoint(Settings& settings) {
    auto& config = settings.config;
    if (settings.endpoint_text.empty()) {
        if (config.nodes_max > 1) return endpoint_missing(settings);
        config.endpoint = {"localhost", c10d_port};
        return std::nullopt;
    }
    // The first endpoint is handled last, because config.endpoint keeps it.
    const auto places = split_places(settings.endpoint_text);
    for (auto place = places.rbegin(); place != places.rend(); ++place) {
        if (const auto wrong = set_endpoint("--rdzv-endpoint", *place, c10d_port, config)) return wrong;
        if (place + 1 != places.rend()) config.more_endpoints.insert(config.more_endpoints.begin(), config.endpoint);
    }
    if (config.endpoint.port == 0 && config.nodes_max > 1)
        return cat("--rdzv-endpoint: got '", settings.endpoint_text,
                   "', but the other nodes cannot know which port is chosen for port 0; write HOST:PORT");
    return std::nullopt;
}

/// Sets the members of etcd. apply_etcd_conf() adds the keys of --rdzv-conf.
OptionError choose_etcd_endpoint(Settings& settings) {
    auto& config = settings.config;
    if (settings.endpoint_text.empty() && config.nodes_max > 1)
        return "--rdzv-endpoint is missing: with --rdzv-backend etcd it names the members of etcd, "
               "HOST:2379,HOST:2379,..., the same on all nodes";
    auto& members = config.etcd.emplace().members;
    const auto text = settings.endpoint_text.empty() ? std::string("localhost") : settings.endpoint_text;
    for (const auto place : split_places(text)) {
        if (const auto wrong = set_endpoint("--rdzv-endpoint", trim(place), rendezvous::etcd_port, config))
            return wrong;
        members.push_back(config.endpoint);
    }
    // A member that is not on loopback: the route to it determines the address that this node advertises.
    const auto outer = std::ranges::find_if(members, [](const auto& member) { return !is_loopback(member.host); });
    config.endpoint = outer == members.end() ? members.front() : *outer;
    return std::nullopt;
}

OptionError choose_rendezvous(Settings& settings) {
    auto& config = settings.config;
    config.endpoint_option = !settings.endpoint_text.empty() ? "--rdzv-endpoint"
                             : settings.master_addr          ? "--master-addr"
                                                             : "";
    config.named_job = config.job;
    if (is_standalone(settings)) {
        config.standalone = true;
        config.backend = Backend::c10d;
        config.endpoint = {"localhost", 0};
        config.job = random_uuid();
        if (config.nodes_min > 1)
            return cat("--standalone: it runs one node, but --nnodes asks for at least ", config.nodes_min,
                       "; write --rdzv-backend c10d --rdzv-endpoint HOST:PORT instead of --standalone");
        config.nodes_max = 1;
        return std::nullopt;
    }
    if (settings.etcd_backend) return choose_etcd_endpoint(settings);
    if (config.backend == Backend::c10d) return choose_c10d_endpoint(settings);
    if (const auto wrong = choose_static_endpoint(settings)) return wrong;
    if (config.endpoint.host.find(',') != std::string::npos)
        return cat(
            config.endpoint_option, ": got the addresses ", config.endpoint.host,
            ", but the static back end accepts one, because it becomes MASTER_ADDR; write one, or --rdzv-backend c10d");
    if (config.node_rank < 0) config.node_rank = 0;
    if (config.node_rank >= static_cast<std::int32_t>(config.nodes_max))
        return cat("--node-rank: got ", config.node_rank, ", accepted are 0 to ", config.nodes_max - 1,
                   " with --nnodes ", config.nodes_max);
    return std::nullopt;
}

OptionError apply_etcd_conf(Settings& settings, const RendezvousConf& conf) {
    auto& config = settings.config;
    if (!config.etcd) {
        if (!conf.first_of_etcd.empty())
            settings.warnings.push_back(
                cat("--rdzv-conf ", conf.first_of_etcd, " has no effect without --rdzv-backend etcd"));
        return std::nullopt;
    }
    auto tls = rendezvous::tls_files(conf.protocol, conf.tls);
    if (!tls) return cat("--rdzv-conf: ", tls.error().context);
    config.etcd->tls = *std::move(tls);
    config.etcd->prefix = rendezvous::prefix_for(conf.etcd_prefix, config.job);
    config.etcd->is_of_one_job = true;
    config.daemon_ports = conf.daemon_ports;
    return std::nullopt;
}

OptionError apply_conf(Settings& settings) {
    auto& config = settings.config;
    const auto parsed = parse_rendezvous_conf(settings.rendezvous_conf);
    if (!parsed) return cat("--rdzv-conf: ", parsed.error().context);
    const auto& conf = *parsed;
    const bool fixed = config.backend == Backend::fixed;
    const auto other_timeout = fixed         ? conf.timeout.value_or(static_join_timeout)
                               : config.etcd ? conf.timeout.value_or(600s)
                                             : 600s;
    config.join_timeout = conf.join_timeout.value_or(other_timeout);
    if (const auto wrong = apply_etcd_conf(settings, conf)) return wrong;
    config.last_call = conf.last_call.value_or(config.last_call);
    config.is_host = conf.is_host ? conf.is_host : settings.is_first_host;
    settings.join_timeout_given = conf.join_timeout || ((fixed || config.etcd) && conf.timeout);
    settings.last_call_given = conf.last_call.has_value();
    if (settings.lease)
        config.lease = *settings.lease;
    else if (conf.keep_alive_interval || conf.keep_alive_attempts)
        config.lease = conf.keep_alive_interval.value_or(keep_alive_interval) *
                       conf.keep_alive_attempts.value_or(keep_alive_attempts);
    if (config.lease < 100ms || config.lease > 24h)
        return cat("--lease: got ", describe(config.lease),
                   ", accepted is 100 ms to 24 h (--lease SECONDS, or "
                   "keep_alive_interval times keep_alive_max_attempt of --rdzv-conf)");
    config.lost_timeout = settings.lost_timeout.value_or(std::max(config.lost_timeout, 2 * config.lease));
    if (std::max(config.lost_timeout, config.last_call) > 7 * 24h)
        return "--rdzv-lost-timeout or last_call_timeout of --rdzv-conf: accepted are up to 7 days";
    if (!fixed && !config.etcd && conf.timeout && !conf.join_timeout)
        settings.warnings.push_back("--rdzv-conf timeout has no effect with c10d (as in torchrun); write join_timeout");
    return std::nullopt;
}

OptionError choose_program(Settings& settings) {
    auto& config = settings.config;
    if (settings.use_env) config.local_rank_argument = false;
    if (settings.no_python && config.local_rank_argument)
        return "--no-python with --local-rank-argument (torch.distributed.launch) needs --use-env: the program reads "
               "LOCAL_RANK from its environment";
    if (settings.run_path) {
        config.entry = EntryKind::run_path;
        return std::nullopt;
    }
    if (settings.no_python && settings.module)
        return "--no-python contradicts --module: a module runs in Python; remove one of them";
    config.entry = settings.no_python ? EntryKind::program
                   : settings.module  ? EntryKind::module
                                      : EntryKind::by_content;
    return std::nullopt;
}

OptionError choose_grace(Settings& settings, const Environment& environment) {
    constexpr std::string_view variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    if (settings.shutdown_timeout) {
        settings.config.grace = *settings.shutdown_timeout;
    } else if (const auto text = lookup(environment, variable)) {
        const auto value = whole_number(*text, 0, 1'000'000'000);
        if (!value) return cat(variable, ": got '", *text, "'; accepted are whole seconds, 0 or more");
        settings.config.grace = std::chrono::seconds(*value);
    }
    return std::nullopt;
}

/// Raises the default join timeout above the timeouts that it must exceed.
void choose_join_timeout(Settings& settings) {
    auto& config = settings.config;
    if (!settings.join_timeout_given)
        config.join_timeout =
            std::max(config.join_timeout, 2 * std::max({config.lease, config.last_call, config.grace}));
}

/// The default excludes failing nodes only if spares can replace them.
void choose_node_failures(Settings& settings) {
    auto& config = settings.config;
    constexpr NodeFailures with_spares{2, 5};
    const bool heals = config.spares > 0 && config.restarts_max > 0;
    const auto chosen = settings.node_failures.value_or(heals ? with_spares : NodeFailures{});
    config.node_failures_max = chosen.max;
    config.node_failures_of = chosen.of;
}

/// --wire-security encrypt hides the workers' store from the network, too, where an agent serves it. The workers have
/// no TLS of their own for it: their agents do it, once for each node.
OptionError choose_store_door(Settings& settings) {
    auto& config = settings.config;
    const bool is_served = config.backend != Backend::fixed && config.share_store;
    const bool encrypts = config.wire_security == "encrypt" && has_other_nodes(config);
    const char* const why = config.share_store ? "--rdzv-backend is static" : "TORCH_DISABLE_SHARE_RDZV_TCP_STORE is 1";
    const char* const unset = config.share_store ? "" : ", and unset the variable";
    const std::string_view asked = config.store_door ? "--store-door" : "--wire-security encrypt";
    if (encrypts && !is_served)
        settings.warnings.push_back(cat("--wire-security encrypt: the workers' store is in clear text, because ", why,
                                        "; write --rdzv-backend c10d or etcd", unset));
    config.store_door = config.store_door || (encrypts && is_served);
    config.store_relay = config.store_relay || config.store_door;
    if (config.store_relay && !config.standalone && !is_served)
        return cat(config.store_door ? "--store-door" : "--store-relay", " needs a store that the agents serve, but ",
                   why, "; write --rdzv-backend c10d or etcd", unset);
    if (config.store_door && config.insecure)
        return cat(asked,
                   " contradicts --insecure: it asks other hosts for the job's key, which --insecure does "
                   "without; leave one of them out");
    return std::nullopt;
}

}  // namespace

OptionError apply_launch_rules(Settings& settings, const Environment& environment) {
    auto& config = settings.config;
    if (config.job.empty()) return "--rdzv-id: got '', accepted is a name of 1 to 255 bytes, the same on all nodes";
    if (config.job.size() > 255 || config.role.size() > 255)
        return cat(config.job.size() > 255 ? "--rdzv-id" : "--role", ": got a name of ",
                   config.job.size() > 255 ? config.job.size() : config.role.size(), " bytes; accepted are up to 255");
    if (!is_printable_line(config.job) || !is_printable_line(config.role))
        return cat(!is_printable_line(config.job) ? "--rdzv-id" : "--role",
                   ": got a name with a control character or bytes that are not UTF-8; accepted is a name of one line");
    if (const auto wrong = choose_rendezvous(settings)) return wrong;
    if (const auto wrong = apply_conf(settings)) return wrong;
    if (const auto wrong = choose_program(settings)) return wrong;
    if (const auto wrong = choose_grace(settings, environment)) return wrong;
    choose_join_timeout(settings);
    choose_node_failures(settings);
    if (config.handled_signals.empty() && config.handled_signal_names == LaunchConfig{}.handled_signal_names)
        config.handled_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    config.share_store = value_or_empty(environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1";
    if (auto wrong = choose_store_door(settings)) return wrong;
    config.etcd_login_file = value_or_empty(environment, "MUSTER_ETCD_LOGIN_FILE");
    config.prefix_template = value_or_empty(environment, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    return contradiction(settings);
}

}  // namespace muster::launcher
