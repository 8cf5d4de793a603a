// The key of a launch in a step of Slurm's whose nodes find none: the first node makes it, and gives it to the others
// in munge credentials over the port of the rendezvous (OPERATING.md, Sources of the secret).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "launcher/node/node_run.h"
#include "rendezvous/base/endpoint.h"

namespace muster::launcher {

/// Completes a configuration that take_key has left with `awaits_key`: config.key is set afterwards. Without munge on
/// the first node it is ~/.muster/key, which that node makes if it does not exist, and another one only uses. `daemons`
/// are the numeric addresses of the endpoint. Blocks until the first node answers, for at most config.join_timeout, or
/// until `is_stopping`, polled every 20 ms; then the key is one that nobody else has.
std::optional<NotLaunched> agree_on_key(LaunchConfig& config, const Environment& environment,
                                        const std::vector<Endpoint>& daemons, const std::function<bool()>& is_stopping);

}  // namespace muster::launcher
