#include "rendezvous/base/system/detached_child.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

namespace muster {

namespace {

/// Connections and streams must not stay open in a child that their owner does not know.
void close_all_but(int kept) {
    const auto close_range = [](int first, int last) {
        if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
        for (int fd = first; fd <= last && fd < 65'536; ++fd) ::close(fd);  // before Linux 5.9
    };
    close_range(0, kept - 1);
    close_range(kept + 1, std::numeric_limits<int>::max());
}

}  // namespace

Result<void> run_detached(int kept, const std::function<void()>& work) {
    const auto child = ::fork();
    if (child < 0) return error_from_shortage(errno, "start a process");
    if (child == 0) {
        const auto grandchild = ::fork();
        if (grandchild == 0) {
            close_all_but(kept);
            ::setsid();
            work();
        }
        ::_exit(grandchild < 0 ? 1 : 0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) return Error{Errc::io, "a process could not be started"};
    return {};
}

bool wait_beside(int process, int ms) {
    pollfd end{process, POLLIN, 0};
    return ::poll(&end, 1, ms) == 0;
}

}  // namespace muster
