#include "launcher/testament.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/socket_address.h"
#include "rendezvous/base/text.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::launcher {

namespace {

class Deadline {
  public:
    explicit Deadline(Duration limit) : end_(std::chrono::steady_clock::now() + limit) {}
    [[nodiscard]] int left_ms() const {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
        return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
    }

  private:
    Instant end_;
};

bool wait_for(int fd, short events, const Deadline& deadline) {
    pollfd waited{fd, events, 0};
    return ::poll(&waited, 1, deadline.left_ms()) > 0;
}

bool send_all(int fd, std::string_view bytes, const Deadline& deadline) {
    while (!bytes.empty()) {
        const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent > 0)
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        else if ((errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLOUT, deadline))
            return false;
    }
    return true;
}

/// The next message of the daemon; nothing when none comes in time.
std::optional<native::Message> receive(int fd, const Deadline& deadline) {
    native::FrameReader reader(native::Sender::daemon);
    char bytes[512];
    for (;;) {
        auto message = reader.next();
        if (!message) return std::nullopt;
        if (message.value()) return std::move(message.value());
        if (!wait_for(fd, POLLIN, deadline)) return std::nullopt;
        const auto size = ::recv(fd, bytes, sizeof bytes, 0);
        if (size <= 0) return std::nullopt;
        reader.append({bytes, static_cast<std::size_t>(size)});
    }
}

/// Says the frames, Hello and AgentDied; between them the proof, where there is a secret.
bool say(int fd, std::string_view frames, const native::KeyedHash& secret, const Deadline& deadline) {
    if (!secret) return send_all(fd, frames, deadline);
    native::FrameReader reader(native::Sender::agent);
    reader.append(frames);
    auto first = reader.next();
    auto last = reader.next();
    const auto* hello = first && first.value() ? std::get_if<native::Hello>(&*first.value()) : nullptr;
    if (hello == nullptr || !last || !last.value()) return false;
    std::string bytes;
    native::append_frame(bytes, *hello);
    if (!send_all(fd, bytes, deadline)) return false;
    const auto answer = receive(fd, deadline);
    const auto* challenge = answer ? std::get_if<native::Challenge>(&*answer) : nullptr;
    if (challenge == nullptr) return false;
    bytes.clear();
    native::append_frame(bytes,
                         native::Proof{native::proof_of(secret, native::Prover::agent, *hello, challenge->nonce)});
    native::append_frame(bytes, *last.value());
    return send_all(fd, bytes, deadline);
}

/// True when the daemon has taken the bytes: it closes the connection after AgentDied, or keeps it until we do.
bool send_to(const SocketAddress& name, std::string_view frames, const native::KeyedHash& secret,
             const Deadline& deadline) {
    const FileDescriptor socket(::socket(name.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int fd = socket.get();
    if (fd < 0) return false;
    int failure = 0;
    socklen_t failure_size = sizeof failure;
    const int begun = ::connect(fd, name.data(), name.size());
    bool sent = begun == 0 || (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline));
    sent = sent && ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &failure_size) == 0 && failure == 0;
    sent = sent && say(fd, frames, secret, deadline);
    if (sent) {
        // Closing with unread bytes would reset the connection under the frames; so read until the daemon has done.
        ::shutdown(fd, SHUT_WR);
        char unread[512];
        while (wait_for(fd, POLLIN, deadline) && ::recv(fd, unread, sizeof unread, 0) > 0) {
        }
    }
    return sent;
}

}  // namespace

std::string write_testament(const TestamentPlan& plan) {
    std::string testament = cat(plan.port, ' ', join(plan.addresses, " "), '\n');
    native::append_frame(testament, plan.hello);
    native::append_frame(testament, native::AgentDied{.why = plan.why});
    return testament;
}

void deliver_testament(std::string_view testament, Duration limit, const native::KeyedHash& secret) {
    const auto line_end = testament.find('\n');
    if (line_end == std::string_view::npos) return;
    const auto words = split(testament.substr(0, line_end), ' ');
    const auto frames = testament.substr(line_end + 1);
    std::uint16_t port = 0;
    if (!parse_number(words.front(), port)) return;
    const auto address_count = static_cast<std::int64_t>(words.size()) - 1;
    const Deadline all(limit);
    for (std::size_t at = 1; at < words.size(); ++at) {
        const auto name = SocketAddress::from_numeric(std::string(words[at]), port);
        const Deadline one(std::min<Duration>(limit / std::max<std::int64_t>(address_count, 1),
                                              std::chrono::milliseconds(all.left_ms())));
        if (name && send_to(*name, frames, secret, one)) return;
    }
}

}  // namespace muster::launcher
