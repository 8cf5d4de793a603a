// Checks --state and --advertise for `musterd --check`, without starting a daemon.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/state/etcd/etcd_place.h"

namespace muster::rendezvous {

/// Parses --advertise, "HOST:PORT" or "[A,B]:PORT". invalid_argument: agents could not reach a daemon there.
Result<Endpoint> parse_advertised(std::string_view text);

/// Checks, without changing anything, that the file is writable and musterd's own, or that etcd answers and accepts the
/// login. A file that a running daemon has open is valid. Returns notes, one sentence each. Errors: invalid_argument
/// for a malformed `where`; else the obstacle and its remedy. Waits at most 15 s for etcd.
Result<std::vector<std::string>> check_state(const std::string& where, const std::optional<TlsFiles>& tls,
                                             const EtcdLogin& login);

/// Checks --advertise for a daemon with this state. Resolves a host name, with a timeout of 5 s.
Result<std::vector<std::string>> check_advertised(std::string_view text, const std::string& state);

}  // namespace muster::rendezvous
