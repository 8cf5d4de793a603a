// --rdzv-conf key=value,...: torchrun's keys, checked one by one. Unknown ones are refused by name, since a misspelt
// time-out that is silently ignored shows itself months later.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/config/launch_config.h"

namespace muster::launcher {

struct RendezvousConf {
    std::optional<Duration> join_timeout;
    std::optional<Duration> last_call;
    std::optional<Duration> timeout;              ///< static and etcd: the join time-out
    std::optional<Duration> keep_alive_interval;  ///< times the attempts below it makes the lease
    std::optional<std::int64_t> keep_alive_attempts;
    std::optional<bool> is_host;
    // etcd alone, by torchrun's names for "etcd" and for "etcd-v2"
    std::string protocol = "http";
    rendezvous::TlsFiles tls;
    std::string etcd_prefix = "muster/jobs/";  ///< followed by the job's name
    PortRange daemon_ports;
    std::string first_of_etcd;  ///< the first key that only etcd knows; empty: none was given
};

/// Quotes round the whole text are taken off: arguments of a YAML file or a Python list may carry those that a shell
/// would have taken. Reads the whole text, or says in one sentence (without the option's name) which key is wrong and
/// what is accepted.
Result<RendezvousConf> parse_rendezvous_conf(std::string_view text);

}  // namespace muster::launcher
