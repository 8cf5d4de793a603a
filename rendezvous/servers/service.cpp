#include "rendezvous/servers/service.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster::rendezvous {

StopOnSignal::StopOnSignal(EventLoop& loop, std::function<void()> on_hang_up)
    : loop_(loop), on_hang_up_(std::move(on_hang_up)) {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGTERM);
    ::sigaddset(&signals, SIGINT);
    if (on_hang_up_) ::sigaddset(&signals, SIGHUP);
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
    if (info.ssi_signo == SIGHUP) return on_hang_up_();
    signal_ = static_cast<int>(info.ssi_signo);
    loop_.stop();
}

void StopOnSignal::end_at_next(Duration one_request) {
    auto waiting = start_thread("muster-end", [until = std::chrono::steady_clock::now() + one_request] {
        sigset_t signals;
        ::sigemptyset(&signals);
        for (const int number : {SIGTERM, SIGINT}) ::sigaddset(&signals, number);
        int number = 0;
        do {
            ::sigwait(&signals, &number);
        } while (std::chrono::steady_clock::now() < until);
        // By the default action: a thread that waits for a dead NFS server runs no handler, but it can be killed.
        ::signal(number, SIG_DFL);
        ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        ::raise(number);
    });
    if (waiting) waiting->detach();
}

Result<ServiceEnvironment> service_environment(const std::function<const char*(const char*)>& value_of, int own_pid) {
    const auto text = [&](const char* name) {
        const char* const value = value_of(name);
        return std::string(value == nullptr ? "" : value);
    };
    const auto is_ours = [&](const char* name) {
        const auto pid = text(name);
        return pid.empty() || pid == std::to_string(own_pid);
    };
    ServiceEnvironment service;
    service.notify_socket = text("NOTIFY_SOCKET");
    service.state_directory = text("STATE_DIRECTORY");
    if (const auto given = text("WATCHDOG_USEC"); !given.empty() && is_ours("WATCHDOG_PID")) {
        std::int64_t microseconds = 0;
        if (!parse_number(given, microseconds) || microseconds <= 0)
            return Error{Errc::invalid_argument, cat("WATCHDOG_USEC: got '", given, "'; accepted is a number above 0")};
        service.watchdog = std::chrono::microseconds(microseconds);
    }
    const auto given = text("LISTEN_FDS");
    if (given.empty() || text("LISTEN_PID") != std::to_string(own_pid)) return service;
    constexpr int sockets_max = 64;
    int count = 0;
    if (!parse_number(given, count) || count < 0 || count > sockets_max)
        return Error{Errc::invalid_argument,
                     cat("LISTEN_FDS: got '", given, "'; accepted is a number from 0 to ", sockets_max)};
    const auto names = text("LISTEN_FDNAMES");
    for (const auto name : split(names, ':')) service.listens.emplace_back(name);
    service.listens.resize(static_cast<std::size_t>(count), "unknown");
    return service;
}

ServiceReport::ServiceReport(EventLoop& loop, ServiceEnvironment service, std::function<std::string()> status)
    : loop_(loop), service_(std::move(service)), status_(std::move(status)) {
    if (!service_.notify_socket.empty()) loop_.add(*this);
}

ServiceReport::~ServiceReport() {
    if (service_.notify_socket.empty()) return;
    loop_.remove(*this);
    notify("STOPPING=1", 1s);
}

Instant ServiceReport::turn(Instant now) {
    std::string lines;
    const bool checks = now >= check_at_;
    if (!ready_ && checks) lines += "READY=1\n";
    if (service_.watchdog > Duration::zero() && now >= feed_at_) {
        lines += "WATCHDOG=1\n";
        feed_at_ = now + service_.watchdog / 2;
    }
    auto status = checks ? status_() : sent_;
    if (checks) check_at_ = now + 1s;
    if (status != sent_) lines += cat("STATUS=", status, "\n");
    const bool received = lines.empty() || notify(lines, Duration::zero());
    // A watchdog that misses one feed must not wait for the next one: it is late by then.
    if (!received) feed_at_ = std::min(feed_at_, now + 1s);
    if (received && checks) {
        ready_ = true;
        sent_ = std::move(status);
    }
    // Only events change the status, and each event causes a turn. A turn within a second of the last check waits.
    return std::min(service_.watchdog > Duration::zero() ? feed_at_ : no_deadline,
                    checks && received ? no_deadline : check_at_);
}

bool ServiceReport::notify(std::string_view lines, Duration patience) {
    const auto sent = notify_service_manager(service_.notify_socket, lines, patience);
    if (!sent && !failed_) log(LogLevel::warning, sent.error().context);
    failed_ = !sent;
    return sent.has_value();
}

Result<void> notify_service_manager(std::string_view socket_path, std::string_view lines, Duration patience) {
    if (socket_path.empty()) return {};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool fits = socket_path.size() < sizeof address.sun_path;
    if (fits) socket_path.copy(address.sun_path, socket_path.size());
    if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path.size());
    const int fd = fits ? ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    const timeval timeout{.tv_sec = patience / 1s, .tv_usec = 0};
    if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    const bool sent = fd >= 0 && ::sendto(fd, lines.data(), lines.size(),
                                          MSG_NOSIGNAL | (patience == Duration::zero() ? MSG_DONTWAIT : 0),
                                          reinterpret_cast<const sockaddr*>(&address), size) >= 0;
    const int number = fits ? errno : ENAMETOOLONG;
    if (fd >= 0) ::close(fd);
    if (sent) return {};
    return error_from_errno(
        number, cat("cannot send ", lines.substr(0, lines.find('\n')), " to the service manager at ", socket_path,
                    " (NOTIFY_SOCKET); it may stop a service that does not notify"));
}

}  // namespace muster::rendezvous
