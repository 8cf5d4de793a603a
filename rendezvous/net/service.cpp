#include "rendezvous/net/service.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "rendezvous/base/check.h"
#include "rendezvous/base/log.h"

namespace muster::rendezvous {

StopOnSignal::StopOnSignal(EventLoop& loop) : loop_(loop) {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGTERM);
    ::sigaddset(&signals, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    MUSTER_CHECK(fd_ >= 0, errno);
    const auto watched = loop_.add(fd_, EPOLLIN, *this);
    MUSTER_CHECK(watched.has_value(), errno);
}

StopOnSignal::~StopOnSignal() {
    loop_.remove(fd_, *this);
    ::close(fd_);
}

void StopOnSignal::ready(std::uint32_t, Instant) {
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof info) != sizeof info) return;
    signal_ = static_cast<int>(info.ssi_signo);
    loop_.stop();
}

void notify_service_manager(std::string_view socket_path, std::string_view words) {
    if (socket_path.empty()) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool fits = socket_path.size() < sizeof address.sun_path;
    if (fits) socket_path.copy(address.sun_path, socket_path.size());
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path.size());
    const int fd = fits ? ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    const bool sent = fd >= 0 && ::sendto(fd, words.data(), words.size(), MSG_NOSIGNAL,
                                          reinterpret_cast<const sockaddr*>(&address), size) >= 0;
    if (!sent) {
        log(LogLevel::warning, "the service manager at ", socket_path, " was not told ", words, ": ",
            std::strerror(fits ? errno : ENAMETOOLONG));
    }
    if (fd >= 0) ::close(fd);
}

std::size_t raise_open_files_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace muster::rendezvous
