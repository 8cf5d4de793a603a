#include "rendezvous/state/open_state.h"

#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/state/sqlite_state.h"

namespace muster::rendezvous {

Result<OpenedState> open_state(const std::string& where, PostToDaemon post) {
    constexpr std::string_view sqlite = "sqlite:";
    if (where == "memory") return OpenedState{std::make_unique<MemoryState>(), false, {}};
    if (where.starts_with(sqlite) && where.size() > sqlite.size()) {
        auto opened = SqliteState::open(where.substr(sqlite.size()), std::move(post));
        if (!opened) return opened.error();
        return OpenedState{std::move(opened->state), true, std::move(opened->kept)};
    }
    return Error{Errc::invalid_argument, cat("\"", where, "\" is neither memory nor sqlite:PATH")};
}

}  // namespace muster::rendezvous
