// --rdzv-conf key=value,...: torchrun's keys. An unknown key is an error, because a misspelt timeout that is ignored
// silently is noticed months later.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

struct RendezvousConf {
    std::optional<Duration> join_timeout;
    std::optional<Duration> last_call;
    std::optional<Duration> timeout;              ///< The join timeout of static and etcd.
    std::optional<Duration> keep_alive_interval;  ///< The lease is this times keep_alive_attempts.
    std::optional<std::int64_t> keep_alive_attempts;
    std::optional<bool> is_host;
    // For etcd only. Keys have torchrun's names for both "etcd" and "etcd-v2".
    std::string protocol = "http";
    rendezvous::TlsFiles tls;
    std::string etcd_prefix = "muster/jobs/";  ///< The job id follows it.
    PortRange daemon_ports;
    std::string first_of_etcd;  ///< First given key that only etcd supports. Empty: none.
};

/// Parses the whole text. Quotes around it are removed, because no shell removes them from YAML files or Python lists.
/// The error is one sentence (without the option's name): the wrong key and what is accepted.
Result<RendezvousConf> parse_rendezvous_conf(std::string_view text);

}  // namespace muster::launcher
