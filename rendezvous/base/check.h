// MUSTER_CHECK(condition, values...): a violated invariant is a bug and aborts the process, in every build.
#pragma once

#include <string>

#include "rendezvous/base/text/text.h"

namespace muster::detail {

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& values);

template <class... Values>
std::string check_values(const Values&... values) {
    std::string out;
    ((append_part(out, out.empty() ? "" : ", "), append_part(out, values)), ...);
    return out;
}

}  // namespace muster::detail

/// Aborts with the condition, the place and the given values (text or numbers) when `condition` is false. An
/// expression, because g++ without optimisation does not see that a statement with `false` never goes on.
#define MUSTER_CHECK(condition, ...)                                              \
    ((condition) ? static_cast<void>(0)                                           \
                 : ::muster::detail::check_failed(#condition, __FILE__, __LINE__, \
                                                  ::muster::detail::check_values(__VA_ARGS__)))
