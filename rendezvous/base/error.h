// Result<T> and Error: the return types of operations that may fail.
//
// The project distinguishes three kinds of failures:
//   expected, the caller decides (peer closed, deadline passed, bad frame)  -> Result<T>
//   a fact of the domain (node lost, round ended)                           -> an event or an action, not an error
//   a bug (rank >= world)                                                   -> MUSTER_CHECK, see check.h
#pragma once

#include <boost/system/result.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace muster {

/// The kind of a failure; callers branch on this, never on the text.
enum class Errc {
    invalid_argument,   ///< the caller's input breaks a rule that `context` names
    timed_out,          ///< the deadline of the call passed first
    refused,            ///< the peer answered with a refusal
    unreachable,        ///< no answer: name not resolved, no route, connection refused
    peer_closed,        ///< the connection ended, in order or by reset
    bad_frame,          ///< bytes that are not of the protocol
    limit_exceeded,     ///< a length, count or quota beyond its limit
    not_found,          ///< a file, key, program or name that does not exist
    already_exists,     ///< address in use, file in the way
    permission_denied,  ///< the operating system denied it
    cancelled,          ///< cancelled by this process: shutdown, a newer request
    unsupported,        ///< not supported by this build, host or peer
    io,                 ///< any other error of the operating system; `context` holds its text
    round_ended,        ///< the round is over, and this process may enter the next one (Context::rejoin)
};
inline constexpr Errc last_errc = Errc::round_ended;

/// The enumerator's own name, e.g. "timed_out".
std::string_view name(Errc code);

/// A failure with its explanation. The layer that knows the noun adds the context, once
/// ("join job 7 at 10.0.0.1:29400: no answer within 5 s").
struct Error {
    Errc code;
    std::string context;
};

/// "timed_out: join job 7 ...", for logs.
std::string describe(const Error& error);

/// The same failure, its context preceded by "`prefix`: ".
Error with_context(Error error, std::string_view prefix);

/// Makes an Error from `errno`-style `number`; the context is "`what`: <the system's text>".
Error error_from_errno(int number, std::string_view what);

/// What to do when a process, a thread, a descriptor or a file was refused with this errno: "raise ulimit -n". Empty
/// when the errno is about something else.
std::string_view advice_on_shortage(int number);

/// error_from_errno() with that advice behind it.
Error error_from_shortage(int number, std::string_view what);

template <class T>
using Result = boost::system::result<T, Error>;

/// Required by boost::system::result: value() on a failure is a bug of the caller, and aborts with the error's text.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

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
