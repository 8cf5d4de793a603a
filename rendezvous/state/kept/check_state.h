// `musterd --check`: whether --state and --advertise would do, before a daemon is started with them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/state/etcd/etcd_place.h"

namespace muster::rendezvous {

/// The words of --advertise, "HOST:PORT" or "[A,B]:PORT". invalid_argument: agents could not find a daemon there.
Result<Endpoint> parse_advertised(std::string_view text);

/// Looks at the place, and changes nothing there: may the file be written, and is it musterd's; does etcd answer, and
/// let us in. A file that a daemon has open is right. What is no error, but worth a word, is returned in sentences.
/// Errors: invalid_argument for words that name no place; else what stands in the daemon's way, with what to do. Waits
/// at most 15 s for etcd.
Result<std::vector<std::string>> check_state(const std::string& where, const std::optional<TlsFiles>& tls,
                                             const EtcdLogin& login);

/// The same of --advertise, for a daemon with this state: a name is looked up, for 5 s at most.
Result<std::vector<std::string>> check_advertised(std::string_view text, const std::string& state);

}  // namespace muster::rendezvous
