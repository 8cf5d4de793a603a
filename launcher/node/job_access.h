// Who may join the job of this launcher: the rule that nothing serves other hosts without a key, and the key itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/secret/find_secret.h"

namespace muster::launcher {

/// Whether ports of this node accept other hosts. They do not if the job has one node, or its endpoint is on loopback.
bool serves_other_hosts(const LaunchConfig& config);

/// Whether the nodes are tasks of one step of Slurm's, one of which serves the rendezvous: they can agree on a key.
bool meets_in_slurm_step(const LaunchConfig& config, const Environment& environment);

/// Sets config.key and config.keys. A job whose ports accept other hosts (--metrics-listen is one, too) and that has no
/// secret gets ~/.muster/key, which is made if it does not exist; in a step of Slurm's config.awaits_key is set
/// instead. With --insecure it gets no key, and ~/.muster/key is not read. Returns warnings for the user: how other
/// nodes get the key, if this call made it, and that of --insecure. Errors: a source that cannot be used, or no key
/// where one is needed.
Result<std::vector<std::string>> take_key(LaunchConfig& config, const Environment& environment);

/// The part of take_key that makes ~/.muster/key if it does not exist, and uses it. Returns and errors as take_key's.
Result<std::vector<std::string>> make_key(LaunchConfig& config, const Environment& environment);

/// Uses ~/.muster/key if it exists, and makes none. False: it does not exist. Errors: it cannot be used.
Result<bool> use_own_key(LaunchConfig& config, const Environment& environment);

/// Sets config.key and config.keys from these, at least one; the first is the one in use.
void use_secrets(LaunchConfig& config, std::vector<rendezvous::Secret> secrets);

/// Where the daemon of a job is, for `authentication`.
enum class DaemonPlace { here, elsewhere };

/// How peers are authenticated, for reports: "key", "local users" (the kernel reports them), or "none". A daemon
/// elsewhere serves other hosts, also where this job's own ports do not.
std::string_view authentication(const LaunchConfig& config, DaemonPlace daemon = DaemonPlace::here);

}  // namespace muster::launcher
