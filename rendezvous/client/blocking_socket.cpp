#include "rendezvous/client/blocking_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t buffer_bytes = 64 * 1024;

Result<std::vector<ServerAddress>> resolve(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* list = nullptr;
    if (const int code = getaddrinfo(host.c_str(), cat(port).c_str(), &hints, &list); code != 0)
        return Error{Errc::unreachable, cat(host, ": ", gai_strerror(code))};
    std::vector<ServerAddress> addresses;
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
        char text[NI_MAXHOST] = "?";
        getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
        addresses.push_back({{reinterpret_cast<const char*>(entry->ai_addr), entry->ai_addrlen}, text});
    }
    freeaddrinfo(list);
    return addresses;
}

// Shared with the looking-up thread, which may outlive the call.
struct LookUp {
    std::mutex mutex;
    std::condition_variable finished;
    std::optional<Result<std::vector<ServerAddress>>> answer;
};

void set_option(int descriptor, int level, int option, int value) {
    setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

Result<std::vector<ServerAddress>> look_up(const std::string& host, std::uint16_t port, Instant deadline) {
    if (auto numeric = resolve(host, port, AI_NUMERICHOST)) return numeric;
    auto shared = std::make_shared<LookUp>();
    std::thread([shared, host, port] {
        auto answer = resolve(host, port, AI_ADDRCONFIG);
        const std::lock_guard lock(shared->mutex);
        shared->answer = std::move(answer);
        shared->finished.notify_one();
    }).detach();
    std::unique_lock lock(shared->mutex);
    if (!shared->finished.wait_until(lock, deadline, [&] { return shared->answer.has_value(); }))
        return Error{Errc::timed_out, cat(host, ": the name service does not answer")};
    return std::move(*shared->answer);
}

BlockingSocket::BlockingSocket(BlockingSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), buffer_(std::move(other.buffer_)) {}

BlockingSocket& BlockingSocket::operator=(BlockingSocket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(buffer_, other.buffer_);
    return *this;
}

BlockingSocket::~BlockingSocket() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

Result<BlockingSocket> BlockingSocket::connect(const ServerAddress& address, Instant deadline) {
    const auto* name = reinterpret_cast<const sockaddr*>(address.bytes.data());
    const int descriptor = ::socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return error_from_errno(errno, "socket");
    BlockingSocket socket(descriptor);
    set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
    if (::connect(descriptor, name, static_cast<socklen_t>(address.bytes.size())) != 0) {
        if (errno != EINPROGRESS) return Error{Errc::unreachable, error_from_errno(errno, address.text).context};
        if (auto ready = socket.wait_for(POLLOUT, deadline); !ready)
            return Error{Errc::timed_out, cat(address.text, ": no answer")};
        int failure = 0;
        socklen_t size = sizeof failure;
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &size);
        if (failure != 0) return Error{Errc::unreachable, error_from_errno(failure, address.text).context};
    }
    return socket;
}

Result<void> BlockingSocket::wait_for(short events, Instant deadline) const {
    pollfd waiting{.fd = descriptor_, .events = events, .revents = 0};
    for (;;) {
        const auto left = std::max(Duration::zero(), Duration(deadline - std::chrono::steady_clock::now()));
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
        const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = Duration(left - seconds).count()};
        const int count = ::ppoll(&waiting, 1, &timeout, nullptr);
        if (count > 0) return {};
        if (count == 0) return Error{Errc::timed_out, "the deadline passed"};
        if (errno != EINTR) return error_from_errno(errno, "poll");
    }
}

Result<void> BlockingSocket::send(std::string_view bytes, Instant deadline) {
    while (!bytes.empty()) {
        const auto sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (auto ready = wait_for(POLLOUT, deadline); !ready) return ready;
        } else if (errno != EINTR) {
            return Error{Errc::peer_closed, error_from_errno(errno, "send").context};
        }
    }
    return {};
}

Result<std::string_view> BlockingSocket::receive(Instant deadline) {
    buffer_.resize(buffer_bytes);
    for (;;) {
        const auto received = ::recv(descriptor_, buffer_.data(), buffer_.size(), 0);
        if (received > 0) return std::string_view(buffer_.data(), static_cast<std::size_t>(received));
        if (received == 0) return Error{Errc::peer_closed, "the server closed it"};
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (auto ready = wait_for(POLLIN, deadline); !ready) return ready.error();
        } else if (errno != EINTR) {
            return Error{Errc::peer_closed, error_from_errno(errno, "receive").context};
        }
    }
}

}  // namespace muster::rendezvous
