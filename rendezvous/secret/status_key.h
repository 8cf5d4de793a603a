// The key of muster's own viewers of the status pages (muster status, top, logs), who come by TLS and send no token.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/secret/control_key.h"

namespace muster::rendezvous {

/// `key` is the daemon's own (job_key of the empty name), and not empty. The identity is 16 hexadecimal digits and
/// names no job: it opens the pages and joins nothing.
ControlKey status_key(const JobKey& key);

/// Whether the identity of a proven key is that of a status_key.
bool is_status_identity(std::string_view identity);

/// Of the daemon's accepted keys, the one that has this identity; empty if none has.
std::string find_status_key(const JobKeys& accepted, std::string_view identity);

}  // namespace muster::rendezvous
