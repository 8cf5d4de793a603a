#include "rendezvous/base/error.h"

#include <cerrno>

#include "rendezvous/base/check.h"
#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/kernel/process_limit.h"
#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/base/text/text.h"

namespace muster {

std::string_view name(Errc code) {
    return enumerator_name(code);
}

std::string describe(const Error& error) {
    return cat(name(error.code), ": ", error.context);
}

Error with_context(Error error, std::string_view prefix) {
    error.context = cat(prefix, ": ", error.context);
    return error;
}

namespace {

Errc code_of_errno(int number) {
    switch (number) {
        case ENOENT:
        case ENOTDIR: return Errc::not_found;
        case EACCES:
        case EPERM:
        case EROFS: return Errc::permission_denied;
        case EADDRINUSE:
        case EEXIST: return Errc::already_exists;
        case ECONNREFUSED:
        case EHOSTUNREACH:
        case ENETUNREACH:
        case EADDRNOTAVAIL: return Errc::unreachable;
        case ECONNRESET:
        case EPIPE: return Errc::peer_closed;
        case ETIMEDOUT: return Errc::timed_out;
        case EMFILE:
        case ENFILE:
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
        case ENOMEM: return Errc::limit_exceeded;
        case EINVAL: return Errc::invalid_argument;
        default: return Errc::io;
    }
}

}  // namespace

Error error_from_errno(int number, std::string_view what) {
    return Error{code_of_errno(number), cat(what, ": ", errno_text(number))};
}

std::string_view advice_on_shortage(int number) {
    switch (number) {
        case EAGAIN:
            return "raise that limit (ulimit -u, or pids.max of the control group), or start fewer workers here";
        case ENOMEM: return "this host or its control group has no memory left for it";
        case EMFILE: return "this process has no descriptor left: raise ulimit -n";
        case EFBIG: return "this process may write no larger file: raise ulimit -f (RLIMIT_FSIZE)";
        case ENFILE: return "this host has no descriptor left: raise fs.file-max";
        case ENOSPC:
        case EDQUOT:
            return "free space or inodes there (df -h, df -i), or choose another directory (--log-dir); for epoll_ctl, "
                   "raise fs.epoll.max_user_watches";
        default: return {};
    }
}

Error error_from_shortage(int number, std::string_view what) {
    auto error = error_from_errno(number, what);
    if (number == EAGAIN) error.context += cat("; the limit is ", reached_process_limit());
    if (const auto advice = advice_on_shortage(number); !advice.empty()) error.context += cat("; ", advice);
    return error;
}

void throw_exception_from_error(const Error& error, const boost::source_location& where) {
    detail::check_failed("the result has a value", where.file_name(), static_cast<int>(where.line()), describe(error));
}

}  // namespace muster
