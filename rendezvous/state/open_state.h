// `musterd --state`: the words of the option, and what they open.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/state/etcd_place.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

struct OpenedState {
    std::unique_ptr<StateStore> store;
    bool keeps_records = false;
    KeptState kept;
};

/// "memory", "sqlite:PATH" or "etcd://HOST:PORT,...[/PREFIX]", the last one reached as `tls` and `login` say. `self` is
/// where agents find this daemon, for the others that share its state. `post` outlives the store. invalid_argument:
/// neither, with what there is; else the errors of the store that was asked for.
Result<OpenedState> open_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login,
                               const std::string& self, PostToDaemon post);

}  // namespace muster::rendezvous
