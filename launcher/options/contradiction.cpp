#include "launcher/options/contradiction.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

using OptionError = std::optional<std::string>;

/// A timeout that must be shorter than another one.
struct Wait {
    std::string_view option;
    Duration length;
    bool given;
};

std::string describe_wait(const Wait& wait) {
    return cat(wait.option, " of ", describe(wait.length), wait.given ? "" : " (the default)");
}

OptionError check_order(const Wait& inner, const Wait& outer, std::string_view because) {
    if (inner.length < outer.length) return std::nullopt;
    return cat(describe_wait(inner), " contradicts ", describe_wait(outer), ": ", because, "; make ", outer.option,
               " longer");
}

/// Checks lease < lost timeout; and lease, last call and grace < join timeout.
OptionError check_waits(const Settings& settings) {
    const auto& config = settings.config;
    const Wait lease{"--lease", config.lease, settings.lease || config.lease != LaunchConfig{}.lease};
    const Wait lost{"--rdzv-lost-timeout", config.lost_timeout, settings.lost_timeout.has_value()};
    const Wait join{"join_timeout of --rdzv-conf", config.join_timeout, settings.join_timeout_given};
    const Wait last_call{"last_call_timeout of --rdzv-conf", config.last_call, settings.last_call_given};
    const Wait grace{"--shutdown-timeout", config.grace, settings.shutdown_timeout.has_value()};
    if (auto wrong =
            check_order(lease, lost, "a node would leave the rendezvous before the rendezvous counts it as lost"))
        return wrong;
    // The default of the join timeout is longer than all of these. torchrun accepts a shorter one beside defaults or
    // keep-alive keys, so muster does.
    const bool kept_alive = lease.given && !settings.lease;
    const auto in_join = [&](const Wait& inner, std::string_view because) -> OptionError {
        if (!inner.given || (kept_alive && inner.option == lease.option)) return std::nullopt;
        return check_order(inner, join, because);
    };
    if (auto wrong = in_join(lease, "the join timeout would pass before a lost node is detected")) return wrong;
    // The static back end has no last call.
    auto late = config.backend == Backend::fixed
                    ? std::nullopt
                    : in_join(last_call, "the join timeout would pass before the last call ends");
    if (late) return late;
    return in_join(grace,
                   "after a failure, the join timeout would pass on some nodes while others still stop their workers");
}

OptionError check_budgets(const Settings& settings) {
    const auto& config = settings.config;
    if (!config.keep_workers && config.keep_limit != LaunchConfig{}.keep_limit)
        return cat("--keep-limit ", config.keep_limit,
                   " contradicts --on-worker-failure=restart (the default), which starts no worker alone; add "
                   "--on-worker-failure=keep");
    if (config.restarts_max > 0 && config.restarts_window == Duration::zero() && settings.node_failures &&
        settings.node_failures->max > config.restarts_max)
        return cat("--node-failures ", settings.node_failures->max, "/", settings.node_failures->of,
                   " contradicts --max-restarts ", config.restarts_max,
                   ": the job would end before a node fails this often; lower --node-failures or raise --max-restarts");
    // Only explicit values are compared. Equal values do not contradict each other.
    if (config.restarts_max > 0 && config.restarts_window == Duration::zero() &&
        config.stalled_restarts_max > config.restarts_max &&
        config.stalled_restarts_max != LaunchConfig{}.stalled_restarts_max)
        return cat("--max-stalled-restarts ", config.stalled_restarts_max, " contradicts --max-restarts ",
                   config.restarts_max,
                   ": the job would end first; lower --max-stalled-restarts or raise --max-restarts");
    if (config.restarts_max > 0) return std::nullopt;
    if (config.restarts_window > Duration::zero())
        return cat("--max-restarts: a window of ", describe(config.restarts_window),
                   " contradicts 0 restarts; write --max-restarts 0, or N/WINDOW with N above 0");
    if (settings.node_failures && settings.node_failures->max > 0)
        return cat(
            "--node-failures ", settings.node_failures->max, "/", settings.node_failures->of,
            " contradicts --max-restarts 0 (the default): no round follows the first failure; raise --max-restarts");
    if (config.restart_early_failures)
        return "--restart-early-failures contradicts --max-restarts 0 (the default): no restart is allowed; raise "
               "--max-restarts";
    return std::nullopt;
}

OptionError check_spares(const LaunchConfig& config) {
    if (config.spares == 0) return std::nullopt;
    if (config.standalone)
        return cat("--spares ", config.spares,
                   " contradicts a single-node rendezvous (--standalone, or no --rdzv-endpoint), which no spare can "
                   "join; write --rdzv-endpoint HOST:PORT");
    if (config.backend == Backend::fixed)
        return cat("--spares ", config.spares,
                   " contradicts --rdzv-backend static, whose nodes have fixed ranks; write --rdzv-backend c10d");
    return std::nullopt;
}

OptionError check_signals(const LaunchConfig& config) {
    const auto& stops = config.handled_signals;
    if (std::ranges::find(stops, config.preemption_signal) == stops.end()) return std::nullopt;
    return cat("--preemption-signal ", config.preemption_signal,
               " contradicts --signals-to-handle, whose signals stop the job: ", config.handled_signal_names,
               config.handled_signal_names == LaunchConfig{}.handled_signal_names ? " (the default)" : "",
               "; remove it from that list, or choose another signal");
}

}  // namespace

OptionError contradiction(const Settings& settings) {
    if (auto wrong = check_waits(settings)) return wrong;
    if (auto wrong = check_budgets(settings)) return wrong;
    if (auto wrong = check_spares(settings.config)) return wrong;
    return check_signals(settings.config);
}

}  // namespace muster::launcher
