#include "launcher/node/job_access.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/find_secret.h"
#include "rendezvous/secret/job_key.h"

namespace muster::launcher {

namespace {

using Secrets = std::vector<rendezvous::Secret>;

/// The variables without HOME, and so without ~/.muster/key.
rendezvous::ValueOf without_home(const Environment& environment) {
    return [value = value_of(environment)](const char* name) {
        return std::string_view(name) == "HOME" ? std::string() : value(name);
    };
}

}  // namespace

bool serves_other_hosts(const LaunchConfig& config) {
    if (config.standalone || !has_other_nodes(config)) return false;
    if (!config.local_address.empty() && !is_loopback(config.local_address)) return true;
    const auto is_outer = [](const Endpoint& place) { return !is_loopback(place.host); };
    if (config.etcd) return std::ranges::any_of(config.etcd->members, is_outer);
    return is_outer(config.endpoint) || std::ranges::any_of(config.more_endpoints, is_outer);
}

bool meets_in_slurm_step(const LaunchConfig& config, const Environment& environment) {
    return config.is_host && !config.etcd && config.more_endpoints.empty() && serves_other_hosts(config) &&
           is_slurm_task(environment);
}

void use_secrets(LaunchConfig& config, std::vector<rendezvous::Secret> secrets) {
    config.key = rendezvous::job_key(secrets.front(), config.job);
    config.keys = rendezvous::job_keys(std::make_shared<const Secrets>(std::move(secrets)));
}

Result<std::vector<std::string>> make_key(LaunchConfig& config, const Environment& environment) {
    const auto value = value_of(environment);
    auto made = rendezvous::make_own_key(value);
    if (!made)
        return with_context(made.error(),
                            "this job's ports accept other hosts, so its nodes need a key, and it cannot be made "
                            "(MUSTER_KEY gives one, --insecure does without)");
    std::vector<std::string> news;
    if (made->is_new)
        news.push_back(cat("made the key of your jobs, ", made->origin,
                           ". Nodes with the same home directory use it. For others, once each: muster key show | "
                           "ssh NODE muster key set"));
    use_secrets(config, MUSTER_TRY(rendezvous::accepted_with(*std::move(made), value)));
    return news;
}

Result<bool> use_own_key(LaunchConfig& config, const Environment& environment) {
    const auto value = value_of(environment);
    auto found = MUSTER_TRY(rendezvous::find_own_key(value));
    if (found.text.empty()) return false;
    use_secrets(config, MUSTER_TRY(rendezvous::accepted_with(std::move(found), value)));
    return true;
}

/// --insecure leaves ~/.muster/key aside, which is made without being asked for.
Result<std::vector<std::string>> take_key(LaunchConfig& config, const Environment& environment) {
    std::vector<std::string> news;
    const bool shows_metrics = !config.metrics_listen.address.empty() && !is_loopback(config.metrics_listen.address);
    const bool needs_key = shows_metrics || serves_other_hosts(config);
    auto secrets =
        rendezvous::find_accepted_secrets(config.insecure ? without_home(environment) : value_of(environment));
    if (!secrets && !needs_key) {
        auto other = rendezvous::find_accepted_secrets(without_home(environment));
        if (other) news.push_back(cat(secrets.error().context, "; this job has one node and goes on without that key"));
        if (other) secrets = std::move(other);
    }
    if (!secrets) return secrets.error();
    if (!secrets->empty()) {
        use_secrets(config, *std::move(secrets));
    } else if (!config.insecure && meets_in_slurm_step(config, environment)) {
        if (shows_metrics)
            return Error{Errc::invalid_argument,
                         cat("--metrics-listen ", config.metrics_listen.address,
                             " asks other hosts for a token, which nobody has where munge gives the job its key: make "
                             "one first (muster key), or set MUSTER_KEY")};
        config.awaits_key = true;
    } else if (!config.insecure && needs_key) {
        return make_key(config, environment);
    } else if (needs_key) {
        news.push_back(cat("--insecure: every host that reaches this node's ports can ",
                           serves_other_hosts(config) ? "join the job, and so run programs as its user"
                                                      : "read what --metrics-listen shows",
                           "; without --insecure, a key (~/.muster/key) keeps strangers out"));
    }
    return news;
}

std::string_view authentication(const LaunchConfig& config, DaemonPlace daemon) {
    if (!config.key.empty()) return "key";
    return daemon == DaemonPlace::elsewhere || serves_other_hosts(config) || config.local_users == LocalUsers::all
               ? "none"
               : "local users";
}

}  // namespace muster::launcher
