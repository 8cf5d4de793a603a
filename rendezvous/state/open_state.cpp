#include "rendezvous/state/open_state.h"

#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/state/etcd_state.h"
#include "rendezvous/state/sqlite_state.h"

namespace muster::rendezvous {

Result<OpenedState> open_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login,
                               const std::string& self, PostToDaemon post) {
    constexpr std::string_view sqlite = "sqlite:";
    constexpr std::string_view etcd = "etcd://";
    if (where == "memory") return OpenedState{std::make_unique<MemoryState>(), false, {}};
    if (where.starts_with(sqlite) && where.size() > sqlite.size()) {
        auto opened = SqliteState::open(where.substr(sqlite.size()), std::move(post));
        if (!opened) return opened.error();
        return OpenedState{std::move(opened->state), true, std::move(opened->kept)};
    }
    if (where.starts_with(etcd)) {
        auto place = parse_etcd_place(std::string_view(where).substr(etcd.size()));
        if (!place) return place.error();
        place->tls = tls;
        place->login = login;
        auto opened = EtcdState::open(*std::move(place), self, std::move(post));
        if (!opened) return opened.error();
        return OpenedState{*std::move(opened), true, {}};
    }
    return Error{Errc::invalid_argument,
                 cat("\"", where, "\" is none of memory, sqlite:PATH, etcd://HOST:PORT,HOST:PORT,...")};
}

}  // namespace muster::rendezvous
