#include "launcher/contradiction.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

using Complaint = std::optional<std::string>;

/// What must end before something else does.
struct Wait {
    std::string_view option;
    Duration length;
    bool given;
};

Complaint check_order(const Wait& inner, const Wait& outer, std::string_view because) {
    if (!inner.given || !outer.given || inner.length < outer.length) return std::nullopt;
    return cat(inner.option, " of ", describe(inner.length), " contradicts ", outer.option, " of ",
               describe(outer.length), ": ", because, "; make ", outer.option, " the longer one");
}

/// From the inside out: lease, lost time-out; lease, last call and grace, join time-out.
Complaint check_waits(const Settings& settings) {
    const auto& config = settings.config;
    const Wait lease{"--lease", config.lease, true};
    const Wait lost{"--rdzv-lost-timeout", config.lost_timeout, true};
    const Wait join{"join_timeout of --rdzv-conf", config.join_timeout, settings.join_timeout_given};
    const Wait last_call{"last_call_timeout of --rdzv-conf", config.last_call, settings.last_call_given};
    const Wait grace{"--shutdown-timeout", config.grace, settings.shutdown_timeout.has_value()};
    if (auto wrong = check_order(lease, lost, "a node would give up the rendezvous before it counts as lost"))
        return wrong;
    const Wait given_lease{"--lease", config.lease, settings.lease.has_value()};
    if (auto wrong =
            check_order(given_lease, join, "nodes would give up before a silent one among them is known to be lost"))
        return wrong;
    if (auto wrong = check_order(last_call, join, "nodes would give up before the last call for further nodes is over"))
        return wrong;
    return check_order(grace, join,
                       "after a failure, nodes that are ready would give up while others still stop their workers");
}

Complaint check_budgets(const Settings& settings) {
    const auto& config = settings.config;
    if (config.restarts_max > 0 && config.restarts_window == Duration::zero() && settings.node_failures &&
        settings.node_failures->max > config.restarts_max)
        return cat("--node-failures ", settings.node_failures->max, "/", settings.node_failures->of,
                   " contradicts --max-restarts ", config.restarts_max,
                   ": the job would be over before a node has failed so often; make one of them larger or smaller");
    if (config.restarts_max > 0) return std::nullopt;
    if (config.restarts_window > Duration::zero())
        return cat("--max-restarts: a window of ", describe(config.restarts_window),
                   " contradicts the 0 restarts in it; write --max-restarts 0 alone, or N/WINDOW with N above 0");
    if (settings.node_failures && settings.node_failures->max > 0)
        return cat("--node-failures ", settings.node_failures->max, "/", settings.node_failures->of,
                   " contradicts --max-restarts 0: after the first failure there is no round to leave a node out of");
    if (config.restart_early_failures)
        return "--restart-early-failures contradicts --max-restarts 0: there is no restart to be had";
    return std::nullopt;
}

Complaint check_spares(const LaunchConfig& config) {
    if (config.spares == 0) return std::nullopt;
    if (config.standalone)
        return cat(
            "--spares ", config.spares,
            " contradicts a rendezvous for this node alone (--standalone, or no --rdzv-endpoint): no spare can come");
    if (config.backend == Backend::fixed)
        return cat("--spares ", config.spares,
                   " contradicts --rdzv-backend static, whose nodes have fixed ranks; write --rdzv-backend c10d");
    return std::nullopt;
}

Complaint check_signals(const LaunchConfig& config) {
    const auto& stops = config.handled_signals;
    if (std::find(stops.begin(), stops.end(), config.preemption_signal) == stops.end()) return std::nullopt;
    return cat("--preemption-signal ", config.preemption_signal,
               " contradicts --signals-to-handle, whose signals stop the job: ", config.handled_signal_names,
               "; leave it out of these, or choose another one");
}

}  // namespace

Complaint contradiction(const Settings& settings) {
    if (auto wrong = check_waits(settings)) return wrong;
    if (auto wrong = check_budgets(settings)) return wrong;
    if (auto wrong = check_spares(settings.config)) return wrong;
    return check_signals(settings.config);
}

}  // namespace muster::launcher
