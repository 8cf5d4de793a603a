// LaunchConfig in the words of the parts that it is handed to. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/driver/agent.h"
#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/options/entry.h"
#include "rendezvous/client/core/client_core.h"

namespace muster::launcher {

/// What is known of this node besides its options.
struct NodeFacts {
    NodeIdentity identity;
    std::vector<std::string> addresses;  ///< advertised
    std::string known_addresses;         ///< of the endpoint, as Endpoint::host lists them; empty: not known
    agent::NetworkFacts network;
    bool hosts_endpoint = false;
    bool stderr_is_terminal = false;
};

native::Join join_message(const LaunchConfig& config, const NodeFacts& node);

agent::AgentConfig agent_config(const LaunchConfig& config, const Entry& entry, const Environment& environment,
                                const NodeFacts& node);

rendezvous::ClientConfig client_config(const LaunchConfig& config, const NodeFacts& node);

}  // namespace muster::launcher
