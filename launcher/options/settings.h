// The values of the options: the configuration as far as single options decide it, and the input of the rules that span
// several options (launch_rules.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/launch_config.h"
#include "launcher/config/option_values.h"

namespace muster::launcher {

struct Settings {
    LaunchConfig config;
    std::vector<std::string> warnings;  ///< Logged once the log is set up.

    std::string endpoint_text;                 ///< --rdzv-endpoint as given. "" counts as not given.
    std::optional<std::string> master_addr;    ///< Default 127.0.0.1.
    std::optional<std::uint16_t> master_port;  ///< Default 29500. If given, standalone is not implied.
    std::string rendezvous_conf;
    bool etcd_backend = false;                  ///< --rdzv-backend etcd or etcd-v2.
    std::optional<Duration> lost_timeout;       ///< --rdzv-lost-timeout. Its default grows with the lease.
    std::optional<Duration> lease;              ///< --lease overrides the keep-alive keys of --rdzv-conf.
    std::optional<Duration> shutdown_timeout;   ///< Default TORCH_ELASTIC_SHUTDOWN_TIMEOUT, then 30 s.
    std::optional<NodeFailures> node_failures;  ///< Its default depends on --spares.
    bool join_timeout_given = false;            ///< In --rdzv-conf.
    bool last_call_given = false;
    bool standalone_asked = false;
    std::optional<bool> is_first_host;  ///< True on the scheduler's first host, which hosts the rendezvous. is_host of
                                        ///< --rdzv-conf overrides it.
    bool module = false;
    bool no_python = false;
    bool run_path = false;
    bool use_env = false;  ///< Turns local_rank_argument off.
};

}  // namespace muster::launcher
