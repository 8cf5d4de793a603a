// Reserves the space of a file, or the pages of a memfd, so that a full disk is an error now and not a SIGBUS later.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>

namespace muster {

/// 0, or an errno. In memory, older kernels stop with EINTR at each signal that the program handles, with SA_RESTART
/// too: then it is called again.
inline int reserve_space(int file, std::size_t at, std::size_t size_bytes) {
    int failed = 0;
    do failed = ::posix_fallocate(file, static_cast<off_t>(at), static_cast<off_t>(size_bytes));
    while (failed == EINTR);
    return failed;
}

}  // namespace muster
