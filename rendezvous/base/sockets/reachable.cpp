#include "rendezvous/base/sockets/reachable.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/connect_limits.h"

namespace muster::rendezvous {

namespace {

struct Try {
    FileDescriptor socket;
    bool stands = false;
};

Try begin(const SocketAddress& address) {
    Try one;
    one.socket = FileDescriptor(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!one.socket.valid()) return one;
    one.stands = ::connect(one.socket.get(), address.data(), address.size()) == 0;
    if (!one.stands && errno != EINPROGRESS) one.socket.reset();
    return one;
}

bool connected(const FileDescriptor& socket) {
    int failure = 0;
    socklen_t size = sizeof failure;
    return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0;
}

/// Waits for the tries under way; the number of one that stands. Those that have failed are closed.
std::optional<std::size_t> wait(std::vector<Try>& tries, Instant until) {
    std::vector<pollfd> polled;
    for (const auto& one : tries) polled.push_back({one.socket.get(), POLLOUT, 0});  // -1 is passed over
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000))) <= 0)
        return std::nullopt;
    for (std::size_t i = 0; i < tries.size(); ++i) {
        if (polled[i].revents == 0) continue;
        if (connected(tries[i].socket)) return i;
        tries[i].socket.reset();
    }
    return std::nullopt;
}

/// All addresses had their turn and failed, or the time is up: nothing.
std::optional<std::size_t> race(const std::vector<SocketAddress>& addresses, Instant deadline) {
    std::vector<Try> tries;
    for (;;) {
        const auto now = std::chrono::steady_clock::now();
        const bool all_begun = tries.size() == addresses.size();
        const bool some_left =
            std::any_of(tries.begin(), tries.end(), [](const auto& one) { return one.socket.valid(); });
        if (now >= deadline || (all_begun && !some_left)) return std::nullopt;
        auto until = deadline;
        if (!all_begun) {
            tries.push_back(begin(addresses[tries.size()]));
            if (tries.back().stands) return tries.size() - 1;
            if (!tries.back().socket.valid()) continue;
            if (tries.size() < addresses.size()) until = std::min<Instant>(deadline, now + connect_stagger);
        }
        if (const auto winner = wait(tries, until)) return winner;
    }
}

}  // namespace

std::vector<SocketAddress> reachable_first(std::vector<SocketAddress> addresses, Instant deadline) {
    if (addresses.size() < 2) return addresses;
    if (const auto winner = race(addresses, deadline)) {
        const auto at = addresses.begin() + static_cast<std::ptrdiff_t>(*winner);
        std::rotate(addresses.begin(), at, at + 1);
    }
    return addresses;
}

}  // namespace muster::rendezvous
