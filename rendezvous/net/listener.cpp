#include "rendezvous/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/kernel/file_size_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/name_lookup.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

// So many new connections a turn; the rest waits in the kernel's queue while the others are served.
constexpr int accepts_per_turn = 256;
// After an error that a spare descriptor does not cure (no memory for sockets, the host's table full).
constexpr Duration suspension = 100ms;

// The C library asks a name server twice, 5 s each.
constexpr Duration lookup_timeout = 12s;

// Numeric and named addresses to bind; for "all", IPv6 with IPv4 in it, then IPv4 for hosts without IPv6.
Result<std::vector<SocketAddress>> addresses_to_bind(const std::string& text) {
    if (text.empty()) return std::vector{SocketAddress::any_v6(), SocketAddress::any_v4()};
    const auto wrong = [&](std::string_view why) {
        return Error{Errc::invalid_argument,
                     cat("cannot listen on ", why, "; give one address of this host, or a name that leads to one")};
    };
    if (text.find(',') != std::string::npos) return wrong(cat(text, ": it is more than one address"));
    auto found = look_up({text, 0}, std::chrono::steady_clock::now() + lookup_timeout);
    if (!found) return wrong(found.error().context);
    return found;
}

struct Bound {
    int fd = -1;
    int error_number = 0;
};

/// Two sockets that both have SO_REUSEADDR may be bound to one port, and if they then listen at the same moment the
/// kernel refuses both. Launchers of one job start at the same moment. So the first attempt goes without the option:
/// one of them wins. The second attempt is for a port with connections of an earlier daemon in TIME_WAIT; those have
/// the option because the listener gets it after all, once it listens.
Bound bind_and_listen(SocketAddress address, std::uint16_t port) {
    address.set_port(port);
    const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) return {.fd = -1, .error_number = errno};
    if (address.family() == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, address.is_any() ? 0 : 1);
    bool bound = ::bind(fd, address.data(), address.size()) == 0;
    if (!bound && errno == EADDRINUSE) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        bound = ::bind(fd, address.data(), address.size()) == 0;
    }
    // The kernel cuts the backlog to net.core.somaxconn.
    if (bound && ::listen(fd, 65'535) == 0) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        return {.fd = fd};
    }
    const int number = errno;
    ::close(fd);
    return {.fd = -1, .error_number = number};
}

Error listen_error(const ListenConfig& config, int number) {
    const auto where = config.address.empty() ? std::string("on all addresses") : cat("on ", config.address);
    Error error = error_from_errno(number, cat("cannot listen on port ", describe(config.ports), ' ', where));
    if (number == EADDRINUSE) {
        const std::string holder = describe_port_holder(config.ports.first);
        if (!holder.empty()) error.context += cat("; it is held by ", holder);
        error.code = Errc::already_exists;
    } else if (number == EACCES) {
        error.context +=
            "; ports below 1024 are for root and those with CAP_NET_BIND_SERVICE: take one from 1024 on, or give that "
            "right (in a unit: AmbientCapabilities=CAP_NET_BIND_SERVICE, or let a .socket unit hold the port)";
    } else if (number == EADDRNOTAVAIL) {
        error.code = Errc::invalid_argument;
        error.context += "; the address must be one of this host's";
    }
    return error;
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const ListenConfig& config) {
    auto addresses = MUSTER_TRY(addresses_to_bind(config.address));
    int number = EADDRNOTAVAIL;
    for (std::uint32_t port = config.ports.first; port <= config.ports.last; ++port) {
        for (const SocketAddress& address : addresses) {
            const Bound bound = bind_and_listen(address, static_cast<std::uint16_t>(port));
            if (bound.fd >= 0) {
                return std::unique_ptr<Listener>(new Listener(bound.fd, config));
            }
            number = bound.error_number;
            // IPv4 alone is tried where there is no IPv6, not where the port is taken: half a port serves nobody.
            if (number == EADDRINUSE || number == EACCES) break;
        }
    }
    return listen_error(config, number);
}

Result<std::unique_ptr<Listener>> Listener::adopt(int fd, const ListenConfig& config) {
    int type = 0, listens = 0;
    socklen_t size = sizeof type;
    const bool is_socket = ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
    size = sizeof listens;
    const bool knows = ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0;
    const int family = is_socket ? SocketAddress::local_of(fd).family() : AF_UNSPEC;
    if (!is_socket || !knows || type != SOCK_STREAM || listens == 0 || (family != AF_INET && family != AF_INET6))
        return Error{Errc::invalid_argument, cat("descriptor ", fd,
                                                 " is no listening TCP socket; a .socket unit has to give "
                                                 "ListenStream=PORT, with Accept=no")};
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    return std::unique_ptr<Listener>(new Listener(fd, config));
}

Listener::Listener(int fd, const ListenConfig& config)
    : fd_(fd), spare_fd_(::open("/dev/null", O_RDONLY | O_CLOEXEC)), sources_(config.sources) {
    const SocketAddress local = SocketAddress::local_of(fd);
    port_ = local.port();
    address_ = local.numeric();
    if (config.local_users == LocalUsers::own) peer_users_.emplace();
}

Listener::~Listener() {
    if (loop_ != nullptr && resume_at_ == no_deadline) loop_->remove(fd_, *this);
    ::close(fd_);
    if (spare_fd_ >= 0) ::close(spare_fd_);
}

Result<void> Listener::start(EventLoop& loop, OnAccept on_accept) {
    if (auto watching = loop.add(fd_, EPOLLIN, *this); !watching) return watching;
    loop_ = &loop;
    on_accept_ = std::move(on_accept);
    return {};
}

void Listener::ready(std::uint32_t, Instant now) {
    for (int i = 0; i < accepts_per_turn; ++i) {
        if (!accept_one(now)) return;
    }
}

bool Listener::accept_one(Instant now) {
    SocketAddress peer;
    const int fd = ::accept4(fd_, peer.writable_data(), peer.writable_size(), SOCK_NONBLOCK | SOCK_CLOEXEC);
    const bool is_other = fd >= 0 && !is_served(peer);
    if (is_other && others_ == Others::refused) {
        turn_away(fd, peer, now);
        return true;
    }
    if (fd >= 0) {
        AcceptedSocket socket{.fd = fd,
                              .address = peer.numeric(),
                              .port = peer.port(),
                              .judgement = peer_users_ ? peer_users_->judge(fd, peer) : PeerUsers::Judgement{}};
        if (is_other && socket.judgement.objection.empty()) {
            socket.judgement.objection = sources_->advice;
            socket.keyed_http_only = true;
        }
        on_accept_(std::move(socket));
        return true;
    }
    switch (errno) {
        case EAGAIN: return false;
        case EMFILE:
        case ENFILE: return shed_one(now);
        case ENOBUFS:
        case ENOMEM: suspend(now, errno); return false;
        default: return true;  // this one connection is gone again (ECONNABORTED, EINTR, network errors): next
    }
}

bool Listener::is_served(const SocketAddress& peer) {
    return sources_ == nullptr || sources_->addresses.contains(peer) || own_addresses_.contains(peer.numeric());
}

/// One line a second: a scan must not fill a disk.
void Listener::turn_away(int fd, const SocketAddress& peer, Instant now) {
    ::close(fd);
    ++turned_away_count_;
    if (now - told_at_ < 1s) return;
    told_at_ = now;
    const auto others = std::exchange(turned_away_count_, 0) - 1;
    peer_log_.warn(cat("port ", port_, ": connection from ", peer.numeric(), " refused: ", sources_->advice,
                       others > 0 ? cat(" (and ", others, " more)") : std::string()),
                   now);
}

// True when a connection was turned away and there may be more.
bool Listener::shed_one(Instant now) {
    const int reason = errno;
    if (spare_fd_ >= 0) ::close(spare_fd_);
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    // The descriptor is asked for before the queue is looked at: also an empty queue gives EMFILE.
    const bool none_waits = fd < 0 && errno == EAGAIN;
    if (fd >= 0) ::close(fd);
    spare_fd_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (none_waits && spare_fd_ >= 0) return false;
    if (fd < 0 || spare_fd_ < 0) {
        // Another thread took the freed descriptor: trying again at once would spin.
        suspend(now, reason);
        return false;
    }
    if (now - complained_at_ >= 1s) {
        complained_at_ = now;
        log(LogLevel::error, "port ", port_, ": connections are turned away: ", errno_text(reason),
            "; raise the limit of open files (ulimit -n)");
    }
    return true;
}

void Listener::suspend(Instant now, int error_number) {
    if (now - complained_at_ >= 1s)
        log(LogLevel::error, "port ", port_, ": no connection is accepted for ", muster::describe(suspension), ": ",
            errno_text(error_number));
    complained_at_ = now;
    // Where the kernel has no memory for that either, it is tried again as often as it reports the listener.
    if (resume_at_ == no_deadline && !loop_->change(fd_, 0, *this)) return;
    resume_at_ = now + suspension;
}

void Listener::resume(Instant now) {
    if (now < resume_at_) return;
    if (spare_fd_ < 0) spare_fd_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    resume_at_ = loop_->change(fd_, EPOLLIN, *this) ? no_deadline : now + suspension;
}

}  // namespace muster::rendezvous
