// Parses `musterd --state` and opens the state that it names.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "rendezvous/base/error.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/etcd/etcd_place.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

/// Memory, an SQLite file, or etcd.
using StatePlace = std::variant<std::monostate, std::filesystem::path, EtcdPlace>;
/// Parses "memory", "sqlite:PATH" or "etcd://HOST:PORT,...[/PREFIX]"; etcd uses `tls` and `login`. invalid_argument:
/// none of these; the context lists what is accepted.
Result<StatePlace> parse_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login);

struct OpenedState {
    std::unique_ptr<StateStore> store;
    bool keeps_records = false;
    KeptState kept;
};

/// Opens what parse_state reads. In etcd, `keys` authenticate the records. `self` is the endpoint of this daemon for
/// agents, published to the daemons that share the state. `post` must outlive the store. Errors: as parse_state and the
/// store's `open`.
Result<OpenedState> open_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login,
                               RecordKeys keys, const std::string& self, PostToDaemon post);

}  // namespace muster::rendezvous
