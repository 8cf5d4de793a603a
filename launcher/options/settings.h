// What the options said, one by one: the configuration as far as single options decide it, and the raw material of the
// rules that span several of them (launch_rules.h).
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
    std::vector<std::string> warnings;  ///< for the log, once it is set up

    std::string endpoint_text;                 ///< --rdzv-endpoint as given; "" counts as not given
    std::optional<std::string> master_addr;    ///< default 127.0.0.1
    std::optional<std::uint16_t> master_port;  ///< default 29500; "given or not" decides the implicit standalone rule
    std::string rendezvous_conf;
    bool etcd_backend = false;                  ///< --rdzv-backend etcd or etcd-v2
    std::optional<Duration> lost_timeout;       ///< --rdzv-lost-timeout; its default grows with the lease
    std::optional<Duration> lease;              ///< --lease beats the keep-alive keys of --rdzv-conf
    std::optional<Duration> shutdown_timeout;   ///< default TORCH_ELASTIC_SHUTDOWN_TIMEOUT, then 30 s
    std::optional<NodeFailures> node_failures;  ///< its default depends on --spares
    bool join_timeout_given = false;            ///< by --rdzv-conf, as the next one
    bool last_call_given = false;
    bool standalone_asked = false;
    std::optional<bool> is_first_host;  ///< of those that a scheduler gave, where the nodes meet; --rdzv-conf beats it
    bool module = false;
    bool no_python = false;
    bool run_path = false;
    bool use_env = false;  ///< takes local_rank_argument back
};

}  // namespace muster::launcher
