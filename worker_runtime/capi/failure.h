// Reports a failure to the caller: a status, and a message that the thread keeps.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "muster/muster.h"
#include "rendezvous/base/error.h"

namespace muster::capi {

muster_status status_of(Errc code);
/// Empty for MUSTER_OK, and for what only the C API returns.
std::optional<Errc> code_of(muster_status status);

/// Keeps "`function`: `why`" for muster_last_error(). Takes no memory, so it works when there is none.
muster_status fail(const char* function, muster_status status, std::string_view why) noexcept;
/// The exception that is being handled becomes a status.
muster_status fail_with_exception(const char* function) noexcept;

inline Error invalid(std::string why) {
    return {Errc::invalid_argument, std::move(why)};
}

/// Runs the body of a function of the C API, which gives a Result<void>.
template <class Body>
muster_status guarded(const char* function, Body&& body) noexcept {
    try {
        const Result<void> done = std::forward<Body>(body)();
        return done ? MUSTER_OK : fail(function, status_of(done.error().code), done.error().context);
    } catch (...) {
        return fail_with_exception(function);
    }
}

}  // namespace muster::capi
