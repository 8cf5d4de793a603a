// `musterd --state`: the words of the option, and what they open.
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

/// The words of the option: in memory, in an SQLite file, or in etcd.
using StatePlace = std::variant<std::monostate, std::filesystem::path, EtcdPlace>;
/// Of "memory", "sqlite:PATH" or "etcd://HOST:PORT,...[/PREFIX]", the last one reached as `tls` and `login` say.
/// invalid_argument: none of them, with what there is.
Result<StatePlace> parse_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login);

struct OpenedState {
    std::unique_ptr<StateStore> store;
    bool keeps_records = false;
    KeptState kept;
};

/// What parse_state reads. `self` is where agents find this daemon, for the others that share its state. `post`
/// outlives the store. Errors: parse_state's, and those of the store that was asked for.
Result<OpenedState> open_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login,
                               const std::string& self, PostToDaemon post);

}  // namespace muster::rendezvous
