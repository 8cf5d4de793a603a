#include "rendezvous/state/kept/open_state.h"

#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/state/etcd/etcd_state.h"
#include "rendezvous/state/sqlite/sqlite_state.h"

namespace muster::rendezvous {

Result<StatePlace> parse_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login) {
    constexpr std::string_view sqlite = "sqlite:";
    constexpr std::string_view etcd = "etcd://";
    if (where == "memory") return StatePlace{};
    if (where.starts_with(sqlite) && where.size() > sqlite.size())
        return StatePlace{std::filesystem::path(where.substr(sqlite.size()))};
    if (!where.starts_with(etcd))
        return Error{Errc::invalid_argument,
                     cat("got '", where, "'; accepted are memory, sqlite:PATH, etcd://HOST:PORT,HOST:PORT,...")};
    auto place = MUSTER_TRY(parse_etcd_place(std::string_view(where).substr(etcd.size())));
    place.tls = tls;
    place.login = login;
    return StatePlace{std::move(place)};
}

Result<OpenedState> open_state(const std::string& where, const std::optional<TlsFiles>& tls, const EtcdLogin& login,
                               RecordKeys keys, const std::string& self, PostToDaemon post) {
    auto place = MUSTER_TRY(parse_state(where, tls, login));
    if (const auto* path = std::get_if<std::filesystem::path>(&place)) {
        auto opened = MUSTER_TRY(SqliteState::open(path->string(), std::move(post)));
        return OpenedState{std::move(opened.state), true, std::move(opened.kept)};
    }
    if (auto* etcd = std::get_if<EtcdPlace>(&place)) {
        etcd->record_keys = std::move(keys);
        return OpenedState{MUSTER_TRY(EtcdState::open(std::move(*etcd), self, std::move(post))), true, {}};
    }
    return OpenedState{std::make_unique<MemoryState>(), false, {}};
}

}  // namespace muster::rendezvous
