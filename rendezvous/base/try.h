// The value of a Result, or the end of the function with its error.
#pragma once

#include <type_traits>
#include <utility>

#include "rendezvous/base/error.h"

namespace muster {

template <class T>
T value_of(Result<T>&& result) {
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace muster

/// `const auto number = MUSTER_TRY(read_number(text));` or `MUSTER_TRY(check(number));`. The enclosing function or
/// lambda returns the error where there is one, so its result must take an Error. Not in coroutines. (A statement
/// expression of GCC and Clang.)
#define MUSTER_TRY(...)                       \
    ({                                        \
        auto tried = (__VA_ARGS__);           \
        if (!tried) return tried.error();     \
        ::muster::value_of(std::move(tried)); \
    })
