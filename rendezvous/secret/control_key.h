// The pre-shared keys of a job's connections (TLS, tls/psk_channel.h), and their names on the wire.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/secret/job_key.h"

namespace muster::rendezvous {

struct ControlKey {
    /// 16 hexadecimal digits that tell the keys of a job apart during a change, and the job's name; for viewers of log
    /// files the digits behind logs_label. They show neither key.
    std::string identity;
    std::string key;  ///< 32 bytes; not the one of proofs in clear text
};

/// `key` is not empty.
ControlKey control_key(const JobKey& key, std::string_view job);

/// Of viewers of the job's log files; it opens nothing else. `key` is not empty.
ControlKey logs_key(const JobKey& key);

/// Of muster's own viewers of the status pages (muster status, top, logs), who send no token. `key` is the daemon's own
/// (job_key of the empty name), and not empty. The identity is 16 digits and names no job: it joins nothing.
ControlKey status_key(const JobKey& key);

/// With which the identity of each logs_key begins.
inline constexpr std::string_view logs_label = "logs";

/// The job that an identity names; empty where it names none.
std::string_view job_of_identity(std::string_view identity);

/// Of the keys that are accepted for the identity's job, the one that has this identity; empty if none has.
std::string find_control_key(const JobKeys& accepted, std::string_view identity);

/// Of the daemon's own accepted keys, the status_key that has this identity; empty if none has.
std::string find_status_key(const JobKeys& accepted, std::string_view identity);

}  // namespace muster::rendezvous
