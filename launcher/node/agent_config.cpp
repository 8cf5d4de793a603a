#include "launcher/node/agent_config.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>

#include "agent/driver/metrics_file.h"
#include "launcher/config/shown_arguments.h"
#include "launcher/host/node_pairs.h"
#include "launcher/node/job_access.h"
#include "launcher/node/job_preflight.h"
#include "launcher/node/node_versions.h"
#include "launcher/scheduler/kubernetes_pod.h"
#include "launcher/scheduler/mpi_process.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/host_list.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/events/event.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/secret/job_secret.h"

namespace muster::launcher {

namespace {

/// With more workers on a terminal, lines that many of them print hide the rest: --console=auto folds them.
constexpr std::uint32_t console_lines_max_workers = 8;

/// Of the CPUs that a worker may count as its own, a quarter: the trainer computes on the others. That four threads
/// fill the memory of most hosts is an assumption, not measured on a host with many cores.
std::uint32_t collective_threads(std::uint32_t cpu_count, const LaunchConfig& config) {
    auto own = cpu_count / config.workers_per_node;
    agent::Topology each_a_core;
    for (const auto& worker : config.placements)
        for (const auto cpu : worker.cpus) each_a_core.cpus.push_back({.cpu = cpu, .core = cpu, .is_allowed = true});
    if (!config.placements.empty())
        own = std::ranges::min(agent::worker_threads(each_a_core, config.placements, cpu_count));
    return std::clamp(own / 4, 1U, 4U);
}

std::uint32_t milliseconds(Duration duration) {
    const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(count, 1, std::numeric_limits<std::uint32_t>::max()));
}

std::vector<agent::StreamSet> stream_sets(const StreamChoice& choice, std::uint32_t worker_count) {
    std::vector<agent::StreamSet> sets(worker_count);
    for (std::uint32_t local_rank = 0; local_rank < worker_count; ++local_rank) {
        const auto found = choice.by_local_rank.find(local_rank);
        const auto mask = static_cast<unsigned>(found == choice.by_local_rank.end() ? choice.all : found->second);
        sets[local_rank] = {.out = (mask & 1U) != 0, .err = (mask & 2U) != 0};
    }
    return sets;
}

/// Names and networks matter only where other hosts may come. The launcher has raised its own limit of open files.
/// Rules of a firewall may be many; --preflight=pairs connects.
agent::LookPlan preflight_plan(const LaunchConfig& config, const Environment& environment) {
    agent::LookPlan plan{.directories = {},
                         .skip = config.preflight_skip,
                         .limits = preflight_limits(config),
                         .environment = environment};
    plan.skip.insert({"open-files", "firewall"});
    if (!serves_other_hosts(config))
        plan.skip.insert(
            {"names", "network", "locked-memory", "rdma-port", "roce-mtu", "rdma-device", "rdma-disabled"});
    const auto temporary = value_or_empty(environment, "TMPDIR");
    // A directory may be on a disk that hangs, so the launcher itself does not touch it here.
    for (const auto& directory : {config.checkpoint_dir, config.checkpoint_local_dir, config.log_dir,
                                  std::string(temporary.empty() ? "/tmp" : temporary)})
        if (!directory.empty()) plan.directories.push_back(directory);
    plan.missing = agent::MissingDirectory::is_made_later;
    return plan;
}

void add_health_check(agent::AgentConfig& agent, const LaunchConfig& config, const NodeFacts& node) {
    using SickNode = agent::SupervisorConfig::SickNode;
    // Few hosts have the usual folder. Another one may be on a disk that hangs.
    agent.health = {.command = config.health_check,
                    .folder = config.health_dir,
                    .folder_is_usual = config.health_dir == LaunchConfig{}.health_dir,
                    .limit = config.health_limit,
                    .job = shown_job(config)};
    // The rendezvous ends with the node that hosts it, and the others' job with it.
    const bool has_others = has_other_nodes(config);
    // Where no other node can take its place, what was found is logged, and the job starts.
    if (config.nodes_max > config.nodes_min || config.spares > 0) agent.health.known_fault = config.preflight_fault;
    agent.supervisor.checks_health = agent.health.is_wanted();
    // What was found before the job is not looked at again.
    agent.supervisor.health_interval = agent.health.known_fault.empty() ? config.health_interval : Duration{};
    agent.supervisor.sick_node = !has_others           ? SickNode::leaves
                                 : node.hosts_endpoint ? SickNode::joins
                                                       : SickNode::parks;
}

}  // namespace

std::string metrics_file(const LaunchConfig& config) {
    return config.metrics_dir.empty() ? std::string()
                                      : agent::MetricsFile::path_in(config.metrics_dir, shown_job(config));
}

native::Join join_message(const LaunchConfig& config, const NodeFacts& node) {
    const bool fixed = config.backend == Backend::fixed;
    native::Join join;
    join.terms = {
        .nodes_min = fixed ? config.nodes_max : config.nodes_min,
        .nodes_max = config.nodes_max,
        .spares = config.spares,
        .restarts_max = config.restarts_max,
        .fixed_world = fixed,
        .last_call_ms = milliseconds(config.last_call),
        .lease_ms = milliseconds(config.lease),
        .lost_timeout_ms = milliseconds(config.lost_timeout),
        .stalled_restarts_max = config.checkpoint_dir.empty() ? 0 : config.stalled_restarts_max,
        .restarts_window_ms = config.restarts_window > Duration::zero() ? milliseconds(config.restarts_window) : 0,
        .node_failures_max = config.node_failures_max,
        .node_failures_of = config.node_failures_of,
        .restart_early_failures = config.restart_early_failures,
        .store_door = config.store_door};
    join.slots = config.workers_per_node;
    join.role = config.role;
    join.node_rank = config.node_rank;
    join.hosts_endpoint = node.hosts_endpoint;
    join.addresses = node.addresses;
    join.entry = std::string(base_name(config.script));
    auto shown = shown_arguments(join.entry, config.arguments);
    join.arguments = std::move(shown.text);
    join.arguments_hash = shown.hash;
    return join;
}

std::uint64_t queued_ms(std::string_view submitted_at, Duration since_1970) {
    if (submitted_at.empty()) return 0;
    std::int64_t seconds = 0;
    const auto now = since_1970 / 1s;
    if (parse_number(submitted_at, seconds) && seconds > 0 && seconds <= now && now - seconds <= queued_ms_max / 1000)
        return static_cast<std::uint64_t>(since_1970 / 1ms - seconds * 1000);
    log(LogLevel::warning, "MUSTER_SUBMITTED_AT='", submitted_at,
        "' is not within the last 30 days, in seconds since 1970 (date +%s); the job's time in the queue is not "
        "counted");
    return 0;
}

static agent::LogChoices log_choices(const LaunchConfig& config, const NodeFacts& node) {
    agent::LogChoices logs;
    logs.base = config.log_dir;
    logs.none = config.log_dir_null;
    logs.redirects = stream_sets(config.redirects, config.workers_per_node);
    logs.tee = stream_sets(config.tee, config.workers_per_node);
    logs.local_ranks_filter = config.local_ranks_filter;
    logs.stdout_filters = config.stdout_filters;
    logs.stderr_filters = config.stderr_filters;
    logs.prefix_template = config.prefix_template;
    logs.host_prefix = config.host_prefix;
    logs.to_journal = journal_is_open();
    logs.stdout_is_terminal = node.stdout_is_terminal;
    logs.stderr_is_terminal = node.stderr_is_terminal;
    const bool is_crowded_terminal =
        node.stdout_is_terminal && node.stderr_is_terminal && config.workers_per_node > console_lines_max_workers;
    if (config.console == ConsoleLines::fold || (config.console == ConsoleLines::automatic && is_crowded_terminal))
        logs.fold_among = config.workers_per_node;
    return logs;
}

/// Nothing if the job has another number of nodes than the scheduler's list, which may then have other jobs, too.
std::string expected_hosts(const LaunchConfig& config, const Environment& environment) {
    auto text = slurm_hosts_of_first_task(environment);
    if (text.empty()) text = mpi_hosts_of_first_process(environment);
    if (text.empty()) text = kubernetes_hosts_of_first_pod(environment, config.nodes_max);
    if (text.size() > native::sentence_bytes_max) return {};
    const auto hosts = parse_host_list(text);
    return hosts && hosts->size() == config.nodes_max ? text : std::string();
}

/// The job has no other node, and its daemon is this process's. Nobody can continue without this node: an embedded
/// daemon seals no round without its own (`Job::lacks_host`), also where only this process's main thread stands still.
static bool is_alone(const LaunchConfig& config, const NodeFacts& node) {
    return node.hosts_endpoint && config.nodes_max == 1 && config.more_endpoints.empty();
}

agent::AgentConfig agent_config(const LaunchConfig& config, const Entry& entry, const Environment& environment,
                                const NodeFacts& node) {
    agent::AgentConfig agent;
    agent.supervisor.join = join_message(config, node);
    agent.supervisor.host = node.identity.host;
    agent.is_alone = is_alone(config, node);
    agent.supervisor.grace = config.grace;
    agent.supervisor.keep_max = config.keep_workers ? config.keep_limit : 0;
    agent.supervisor.rank_0_has_store = config.backend != Backend::fixed && !config.share_store;
    agent.supervisor.stop_signals = config.handled_signals;
    // At a time limit, a preemption or scancel, Slurm sends the signal twice within 1 s; SIGKILL follows after
    // KillWait.
    if (is_slurm_task(environment)) agent.supervisor.repeated_signal = SIGTERM;
    agent.supervisor.join.expected_hosts = expected_hosts(config, environment);
    agent.supervisor.join.queued_ms = queued_ms(value_or_empty(environment, "MUSTER_SUBMITTED_AT"),
                                                std::chrono::system_clock::now().time_since_epoch());

    agent.workers.argv = entry.argv;
    agent.workers.environment = {environment.begin(), environment.end()};
    agent.workers.worker_count = config.workers_per_node;
    agent.workers.role = config.role;
    agent.workers.job = config.job;
    agent.shown_job = shown_job(config);
    agent.workers.restarts_max = config.restarts_max;
    agent.workers.checkpoint_dir = config.checkpoint_dir;
    agent.workers.checkpoint_local_dir = config.checkpoint_local_dir;
    agent.workers.placements = config.placements;
    agent.workers.threads = config.threads;
    agent.workers.collective_threads = collective_threads(node.cpu_count, config);
    agent.workers.virtual_local_rank = config.virtual_local_rank;
    agent.workers.agent_store = config.backend == Backend::fixed || config.share_store;
    agent.workers.preemption_signal = config.preemption_signal;
    agent.workers.handled_signal_names = config.handled_signal_names;
    if (config.backend == Backend::fixed) {
        // The daemon of a job of one node listens on loopback alone.
        const bool keeps_host = serves_other_hosts(config) || is_loopback(config.endpoint.host);
        agent.workers.master_address = keeps_host ? config.endpoint.host : "127.0.0.1";
        agent.workers.master_port = config.endpoint.port;
    }

    agent.workers.wire_security = config.wire_security;
    // The workers of one node prove themselves to each other by their user and the round's store.
    const bool has_others = has_other_nodes(config);
    if (has_others ? !config.key.empty() : config.wire_security == "encrypt") {
        agent.ranks_key = [has_others](const std::string& round_secret) {
            // No other node needs the same one.
            const bool draws = round_secret.empty() && !has_others;
            return rendezvous::derived_key(draws ? random_bytes(32) : round_secret, "ranks");
        };
    }
    agent.network = node.network;
    agent.logs = log_choices(config, node);
    agent.handled_signals = config.handled_signals;
    agent.metrics_file = metrics_file(config);
    agent.gpu_use = config.gpu_use;
    if (config.preflight != Preflight::off) agent.preflight = preflight_plan(config, environment);
    add_health_check(agent, config, node);
    agent.allow_faults = config.allow_faults;
    agent.warm_before_join = config.warm_before_join;
    agent.lease = config.lease;
    agent.persist_limit = config.persist_limit;
    agent.hang.host = agent.supervisor.host;
    agent.hang.deadline_min = config.hang_timeout;
    if (config.hang_timeout > Duration::zero()) agent.hang.stuck_after = config.hang_timeout;
    return agent;
}

static rendezvous::ClientKey client_key(const rendezvous::JobKey& key, std::string_view job) {
    if (key.empty()) return {};
    auto control = rendezvous::control_key(key, job);
    return {.secret = rendezvous::control_hash(key),
            .tls_identity = std::move(control.identity),
            .tls_key = std::move(control.key)};
}

rendezvous::ClientConfig client_config(const LaunchConfig& config, const Environment& environment,
                                       const NodeFacts& node) {
    rendezvous::ClientConfig client;
    client.endpoint = config.endpoint;
    // A standalone daemon listens only on IPv4 loopback. The numeric address saves a lookup of "localhost".
    if (config.standalone) client.endpoint.host = "127.0.0.1";
    client.endpoint_option = endpoint_option(config);
    client.known_addresses = node.known_addresses;
    client.others = config.more_endpoints;
    client.leader_is_supplied = config.etcd.has_value();
    client.job = config.job;
    client.node = node.identity;
    if (!lookup(environment, leaves_versions)) client.versions = node_versions(environment);
    client.join_timeout = config.join_timeout;
    client.lease = config.lease;
    client.lost_timeout = config.lost_timeout;
    client.is_alone = is_alone(config, node);
    client.stop_grace = config.grace;
    client.key = client_key(config.key, config.job);
    if (!config.key.empty()) {
        client.peers_hash = [](const std::string& round_secret) {
            return rendezvous::keyed_hash(rendezvous::derived_key(round_secret, "peers"));
        };
    }
    if (config.keys)
        for (const auto& key : config.keys(config.job))
            if (key != config.key) client.older_keys.push_back(client_key(key, config.job));
    return client;
}

}  // namespace muster::launcher
