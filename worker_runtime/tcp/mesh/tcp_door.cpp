#include "worker_runtime/tcp/mesh/tcp_door.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "worker_runtime/tcp/mesh/tcp_call.h"
#include "worker_runtime/tcp/mesh/tcp_limits.h"
#include "worker_runtime/tcp/mesh/tcp_socket.h"

namespace muster::runtime {

TcpPair pair_of(const GroupTerms& terms, const TcpCard& caller, const TcpCard& called) {
    return {.group = terms.id, .security = terms.security, .caller = caller.token, .called = called.token};
}

/// An address may have gone, or not be there yet; one is enough.
Result<std::unique_ptr<TcpDoor>> TcpDoor::open(const std::vector<std::string>& addresses) {
    std::unique_ptr<TcpDoor> door(new TcpDoor);
    door->epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
    if (!door->epoll_.valid()) return error_from_errno(errno, "make an epoll descriptor");
    door->alarm_ = FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!door->alarm_.valid()) return error_from_errno(errno, "make a timer descriptor");
    if (auto watched = door->watch(door->alarm_); !watched) return watched.error();
    std::optional<Error> first_failure;
    for (const auto& address : addresses) {
        auto listener = listen_at(address, SOMAXCONN);
        if (!listener) {
            if (!first_failure) first_failure = listener.error();
            continue;
        }
        if (auto watched = door->watch(*listener); !watched) return watched.error();
        door->listeners_.push_back(std::move(*listener));
    }
    if (door->listeners_.empty())
        return first_failure.value_or(Error{Errc::invalid_argument, "no listen address was given"});
    return door;
}

Result<void> TcpDoor::watch(const FileDescriptor& socket) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket.get();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
        return error_from_errno(errno, "watch a connection");
    return {};
}

/// Before the socket is closed: a forked child may have it, too, and then epoll would report it for ever.
void TcpDoor::unwatch(const FileDescriptor& socket) const {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
}

std::vector<TcpPlace> TcpDoor::places() const {
    std::vector<TcpPlace> places;
    for (const auto& one : listeners_) {
        const auto at = SocketAddress::local_of(one.get());
        places.push_back({at.numeric(), at.port()});
    }
    return places;
}

std::vector<int> TcpDoor::listeners() const {
    std::vector<int> sockets;
    for (const auto& one : listeners_) sockets.push_back(one.get());
    return sockets;
}

Result<void> TcpDoor::serve(const GroupTerms& terms, TcpHost& host, std::size_t expected) {
    const auto now = std::chrono::steady_clock::now();
    if (paused_until_ && *paused_until_ <= now) listen(true);
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        const auto guest =
            std::find_if(guests_.begin(), guests_.end(), [fd](const Guest& one) { return one.socket.get() == fd; });
        if (guest == guests_.end()) continue;
        if (!hear(terms, host, *guest)) guests_.erase(guest);
    }
    // While a crowd of ranks connects, packets are lost and hellos are late, and whoever called again would add to it.
    while (expected == 0 && !guests_.empty() && guests_.front().until <= now) drop_oldest(terms, host);
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        const auto listener = std::find_if(listeners_.begin(), listeners_.end(),
                                           [fd](const FileDescriptor& one) { return one.get() == fd; });
        if (listener == listeners_.end()) continue;
        if (auto admitted = admit(terms, host, *listener, expected); !admitted) return admitted;
    }
    set_alarm(expected == 0);
    return {};
}

/// Not without end: the thread that serves has other descriptors, too.
Result<void> TcpDoor::admit(const GroupTerms& terms, TcpHost& host, const FileDescriptor& listener,
                            std::size_t expected) {
    const auto none_left = [](const FileDescriptor& accepted) {
        return !accepted.valid() && (errno == EMFILE || errno == ENFILE);
    };
    for (std::size_t i = 0; i < calls_admitted_max; ++i) {
        Guest guest;
        guest.socket = accept_from(listener);
        // The kernel says so before it looks whether anybody waits. If so, the bell goes on ringing.
        if (none_left(guest.socket) && i > 0) return {};
        if (none_left(guest.socket) && expected == 0) {
            // A group that stands lacks nothing: it must not end because a stranger calls.
            if (!guests_.empty()) drop_oldest(terms, host);
            guest.socket = accept_from(listener);
            if (none_left(guest.socket)) return listen(false), Result<void>();
        }
        if (none_left(guest.socket)) {
            return Error{Errc::limit_exceeded, cat("no file descriptor is left for ", expected, " more connections; ",
                                                   "raise the limit (ulimit -n)")};
        }
        if (!guest.socket.valid()) return {};
        if (guests_.size() >= unknown_callers_max + expected) drop_oldest(terms, host);
        if (auto watched = watch(guest.socket); !watched) return expected == 0 ? Result<void>() : watched;
        guest.until = std::chrono::steady_clock::now() + unknown_caller_timeout;
        guests_.push_back(std::move(guest));
    }
    return {};
}

/// False when the guest has no more to say.
bool TcpDoor::hear(const GroupTerms& terms, TcpHost& host, Guest& guest) {
    const bool is_there = receive_more(guest.socket, guest.hello, guest.hello_size);
    if (is_there && guest.hello_size < guest.hello.size()) return true;
    unwatch(guest.socket);
    if (is_there) receive(terms, host, std::move(guest));
    return false;
}

/// It may have spoken in time, and this rank been late to hear it.
void TcpDoor::drop_oldest(const GroupTerms& terms, TcpHost& host) {
    Guest& oldest = guests_.front();
    if (hear(terms, host, oldest)) unwatch(oldest.socket);
    guests_.erase(guests_.begin());
}

/// Who calls while it does not listen waits in the kernel's queue.
void TcpDoor::listen(bool listens) {
    for (const auto& one : listeners_) {
        epoll_event event{};
        event.events = listens ? EPOLLIN : 0u;
        event.data.fd = one.get();
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, one.get(), &event);
    }
    if (listens)
        paused_until_.reset();
    else
        paused_until_ = std::chrono::steady_clock::now() + listening_pause;
}

/// For the end of a pause and, if guests go then, of the oldest one's time; without either it is off. What has rung is
/// over.
void TcpDoor::set_alarm(bool guests_go) const {
    std::optional<Instant> next = paused_until_;
    if (guests_go && !guests_.empty()) next = std::min(next.value_or(guests_.front().until), guests_.front().until);
    itimerspec at{};
    if (next) {
        const auto since_boot = next->time_since_epoch();
        const auto whole = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
        at.it_value.tv_sec = whole.count();
        at.it_value.tv_nsec = std::chrono::nanoseconds(since_boot - whole).count();
    }
    ::timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

void TcpDoor::receive(const GroupTerms& terms, TcpHost& host, Guest guest) {
    const auto hello = decode(guest.hello);
    const bool expected = hello && hello->from < hello->to && hello->to == static_cast<std::uint32_t>(terms.rank);
    const auto both = expected
                          ? at_place(pair_of(terms, host.card(static_cast<int>(hello->from)), host.card(terms.rank)),
                                     SocketAddress::local_of(guest.socket.get()))
                          : TcpPair{};
    const auto welcome = expected && is_proven(guest.hello, both) ? host.welcome(*hello) : TcpWelcome{};
    switch (welcome.kind) {
        case TcpWelcome::Kind::refused: return refuse(terms, guest);
        case TcpWelcome::Kind::known: return;
        case TcpWelcome::Kind::later: later_.push_back(std::move(guest)); return;
        case TcpWelcome::Kind::taken: break;
    }
    const auto answer = answer_to(guest.hello, both);
    const auto sent = ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(answer.size())) return;
    host.settle(*welcome.place, stream_of(std::move(guest.socket), TcpEnd::called, guest.hello, answer, both), *hello);
}

void TcpDoor::reconsider(const GroupTerms& terms, TcpHost& host) {
    for (auto& guest : std::exchange(later_, {})) receive(terms, host, std::move(guest));
    set_alarm(true);
}

/// Once aloud: a scan of all ports is no reason to fill a log.
void TcpDoor::refuse(const GroupTerms& terms, const Guest& guest) {
    SocketAddress from;
    if (::getpeername(guest.socket.get(), from.writable_data(), from.writable_size()) != 0) from = {};
    log(std::exchange(told_of_strangers_, true) ? LogLevel::debug : LogLevel::warning, "communicator ", terms.id,
        ", rank ", terms.rank, ": refused a connection from ", describe(TcpPlace{from.numeric(), from.port()}),
        ", which has no proof that it is a rank of this group and called this rank at ",
        describe(at_place({}, SocketAddress::local_of(guest.socket.get())).at),
        ": another program, or a rank of another job or round, or one whose connection was passed on by a third party "
        "(a network that translates addresses needs --wire-security encrypt)");
}

}  // namespace muster::runtime
