#include "launcher/host/open_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/servers/service.h"

namespace muster::launcher {

namespace {

constexpr std::size_t kept = 32;        // event loops, ports, the guardian, the first connections of a daemon
constexpr std::size_t per_worker = 10;  // both ends of pipes during the start, log files, the channel, the store client

}  // namespace

Result<void> check_open_files(std::uint32_t worker_count) {
    const auto limit = rendezvous::raise_open_files_limit();
    const auto needed = kept + per_worker * worker_count;
    std::vector<FileDescriptor> taken;
    taken.reserve(needed);
    while (taken.size() < needed) {
        taken.emplace_back(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
        if (taken.back().valid()) continue;
        return Error{Errc::limit_exceeded,
                     cat("cannot open enough files: ", std::strerror(errno), ". ", worker_count,
                         worker_count == 1 ? " worker needs " : " workers need ", needed, " descriptors, but ",
                         taken.size() - 1, " are available; raise the limit of ", limit, " (ulimit -n)")};
    }
    return {};
}

}  // namespace muster::launcher
