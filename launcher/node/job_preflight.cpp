#include "launcher/node/job_preflight.h"

#include <algorithm>
#include <chrono>

#include "agent/evidence/node_looks.h"
#include "launcher/host/node_doctor.h"
#include "launcher/host/node_pairs.h"
#include "rendezvous/base/check.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/events/files/said_event.h"

namespace muster::launcher {

namespace {

/// Looks that --preflight=local takes beside the join; and ib_write_bw, because another job may use the ports.
const std::set<std::string> taken_later{"names",      "network", "firewall", "system",    "pci",
                                        "kernel-log", "disks",   "settings", "rdma-write"};

agent::Look look_at_links(Launch& launch, const Environment& environment) {
    auto& config = launch.config;
    PairsJob job{.expected_count = static_cast<int>(config.nodes_min),
                 .options = launch.meeting_options,
                 .without = option_variables(),
                 .with = {cat(leaves_versions, "=1")},
                 .interrupted = InterruptedTest::ends_launcher,
                 .limit = PairsJob().limit + config.join_timeout,
                 .limits = preflight_limits(config)};
    // These are for the job itself.
    job.without.insert(job.without.end(), {"TORCHELASTIC_ERROR_FILE", "NOTIFY_SOCKET"});
    if (const auto temporary = value_or_empty(environment, "TMPDIR"); !temporary.empty()) job.directory = temporary;
    // Spares are tested, too.
    const auto most = config.nodes_max + config.spares;
    job.options.insert(job.options.end(), {"--rdzv-id", cat(config.job, "-preflight"), "--nnodes",
                                           config.nodes_min == most ? cat(most) : cat(config.nodes_min, ":", most)});
    const auto before = std::chrono::steady_clock::now();
    auto look = run_pairs_job(job);
    // Nodes that did not come to the test have had their time. Those that came may end their test a little later.
    if (look.state == agent::Look::State::cut && std::chrono::steady_clock::now() - before >= config.join_timeout)
        config.join_timeout =
            std::min(config.join_timeout, 2 * std::max({config.lease, config.last_call, config.grace}));
    const auto tested = look.all("pair").size();
    log(LogLevel::info, "preflight: tested ", tested, tested == 1 ? " link" : " links", " between nodes");
    return look;
}

/// What is left out before the job.
std::set<std::string> left_out(const LaunchConfig& config) {
    auto skip = config.preflight_skip;
    skip.insert(taken_later.begin(), taken_later.end());
    return skip;
}

agent::DoctorFacts look_at_gpus(const LaunchConfig& config, const Environment& environment) {
    return look_at_node({.directories = {},
                         .skip = left_out(config),
                         .limits = preflight_limits(config),
                         .gpu_tests = agent::GpuTests::taken},
                        environment);
}

}  // namespace

Result<void> take_preflight_rules(LaunchConfig& config) {
    config.preflight_skip.erase("");
    if (const auto known = agent::check_skip_names(config.preflight_skip); !known)
        return Error{Errc::invalid_argument, cat("--preflight-skip: ", known.error().context)};
    if (config.preflight_limits_file.empty()) return {};
    auto text = read_limits_file(config.preflight_limits_file);
    if (!text) return Error{Errc::invalid_argument, cat("--preflight-limits: ", text.error().context)};
    config.preflight_limits = *std::move(text);
    return {};
}

agent::DoctorLimits preflight_limits(const LaunchConfig& config) {
    auto limits = agent::parse_limits(config.preflight_limits);
    MUSTER_CHECK(limits.has_value(), config.preflight_limits_file);  // take_preflight_rules() has parsed it
    return *std::move(limits);
}

std::optional<PreflightVerdict> test_before_job(Launch& launch, const Environment& environment) {
    const auto& config = launch.config;
    if (config.preflight < Preflight::pairs) return std::nullopt;
    const bool has_links = !config.standalone && config.nodes_max + config.spares > 1;
    const auto links = has_links ? look_at_links(launch, environment) : agent::Look{};
    auto facts = config.preflight == Preflight::full ? look_at_gpus(config, environment) : agent::DoctorFacts{};
    facts.looks["nodes"] = links;
    // What NVML alone tells is logged beside the join.
    auto skip = left_out(config);
    skip.insert("gpus");
    PreflightVerdict verdict{.findings = agent::examine(facts, preflight_limits(config), skip), .own_fault = {}};
    std::erase_if(verdict.findings, [](const auto& one) { return one.level <= agent::Level::info; });
    // Where two nodes of the job have one name, nobody knows which of them is bad.
    auto namesakes = links.all("node");
    std::erase_if(namesakes, [](const auto* node) { return node->text("host") != host_name(); });
    const bool is_bad = namesakes.size() == 1 && namesakes.front()->text("verdict") == "bad";
    for (const auto& one : verdict.findings) {
        // A cut between groups of nodes is no node's own fault.
        const bool is_own = one.check == "node-links" ? is_bad && one.what.starts_with(cat(host_name(), " "))
                                                      : one.check != "nodes-apart";
        if (one.level == agent::Level::critical && is_own && verdict.own_fault.empty())
            verdict.own_fault = cat(one.check, ": ", one.measured.substr(0, one.measured.find(": ")));
    }
    return verdict;
}

std::string tell_preflight(const std::optional<PreflightVerdict>& verdict, NodeEvents& events) {
    if (!verdict) return {};
    for (auto& event : agent::preflight_events(verdict->findings, host_name())) {
        say(event);
        events.take(std::move(event));
    }
    if (verdict->own_fault.empty()) return {};
    return cat("--preflight: ", verdict->own_fault, "; to take part, start muster there again when it is mended");
}

}  // namespace muster::launcher
