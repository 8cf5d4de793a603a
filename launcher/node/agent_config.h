// Translates LaunchConfig into the configurations of the agent and the rendezvous client. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/driver/agent.h"
#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/options/entry.h"
#include "rendezvous/client/core/client_core.h"

namespace muster::launcher {

/// Facts about this node besides its options.
struct NodeFacts {
    NodeIdentity identity;
    std::vector<std::string> addresses;  ///< The addresses that this node advertises.
    std::string known_addresses;  ///< Addresses of the endpoint's host, as Endpoint::host lists them. Empty: unknown.
    agent::NetworkFacts network;
    std::uint32_t cpu_count = 1;  ///< CPUs for workers.
    bool hosts_endpoint = false;
    bool stdout_is_terminal = false;
    bool stderr_is_terminal = false;
};

/// The path of the metrics file of this node; empty: there is none.
std::string metrics_file(const LaunchConfig& config);

/// How long the job was queued, from MUSTER_SUBMITTED_AT; 0: unknown. Logs what is no such time.
std::uint64_t queued_ms(std::string_view submitted_at, Duration since_1970);

native::Join join_message(const LaunchConfig& config, const NodeFacts& node);

agent::AgentConfig agent_config(const LaunchConfig& config, const Entry& entry, const Environment& environment,
                                const NodeFacts& node);

rendezvous::ClientConfig client_config(const LaunchConfig& config, const Environment& environment,
                                       const NodeFacts& node);

}  // namespace muster::launcher
