#include "launcher/node/death_notice.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
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

enum class Outcome { taken, stands_by, failed };

/// A connection to one daemon.
class Delivery {
  public:
    Delivery(int fd, const Deadline& deadline) : fd_(fd), deadline_(deadline) {}

    Outcome say(std::string_view frames, const native::KeyedHash& secret) {
        if (!secret) return send_all(fd_, frames, deadline_) ? end() : Outcome::failed;
        native::FrameReader reader(native::Sender::agent);
        reader.append(frames);
        auto first = reader.next();
        auto last = reader.next();
        const auto* hello = first && first.value() ? std::get_if<native::Hello>(&*first.value()) : nullptr;
        if (hello == nullptr || !last || !last.value()) return Outcome::failed;
        std::string bytes;
        native::append_frame(bytes, *hello);
        if (!send_all(fd_, bytes, deadline_)) return Outcome::failed;
        const auto answer = hear();
        if (answer && std::holds_alternative<native::NotLeader>(*answer)) return Outcome::stands_by;
        const auto* challenge = answer ? std::get_if<native::Challenge>(&*answer) : nullptr;
        if (challenge == nullptr) return Outcome::failed;
        bytes.clear();
        native::append_frame(bytes,
                             native::Proof{native::proof_of(secret, native::Prover::agent, *hello, challenge->nonce)});
        if (!send_all(fd_, bytes, deadline_)) return Outcome::failed;
        const auto proof = hear();
        const auto* proven = proof ? std::get_if<native::Challenge>(&*proof) : nullptr;
        if (proven == nullptr ||
            !same_digest(native::proof_of(secret, native::Prover::daemon, *hello, challenge->nonce), proven->proof))
            return Outcome::failed;
        bytes.clear();
        native::append_frame(bytes, *last.value());
        return send_all(fd_, bytes, deadline_) ? end() : Outcome::failed;
    }

  private:
    /// Closing a socket with unread bytes resets the connection and may lose the frames. So it reads until the daemon
    /// closes the connection after AgentDied.
    Outcome end() {
        ::shutdown(fd_, SHUT_WR);
        while (const auto message = hear())
            if (std::holds_alternative<native::NotLeader>(*message)) return Outcome::stands_by;
        return Outcome::taken;
    }
    /// The next message of the daemon. Nothing after the deadline.
    std::optional<native::Message> hear() {
        char bytes[512];
        for (;;) {
            auto message = reader_.next();
            if (!message) return std::nullopt;
            if (message.value()) return std::move(message.value());
            if (!wait_for(fd_, POLLIN, deadline_)) return std::nullopt;
            const auto size = ::recv(fd_, bytes, sizeof bytes, 0);
            if (size <= 0) return std::nullopt;
            reader_.append({bytes, static_cast<std::size_t>(size)});
        }
    }

    int fd_;
    const Deadline& deadline_;
    native::FrameReader reader_{native::Sender::daemon};
};

Outcome send_to(const SocketAddress& name, std::string_view frames, const native::KeyedHash& secret,
                const Deadline& deadline) {
    const FileDescriptor socket(::socket(name.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int fd = socket.get();
    if (fd < 0) return Outcome::failed;
    int failure = 0;
    socklen_t failure_size = sizeof failure;
    const int begun = ::connect(fd, name.data(), name.size());
    const bool open = begun == 0 || (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline));
    if (!open || ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &failure_size) != 0 || failure != 0)
        return Outcome::failed;
    return Delivery(fd, deadline).say(frames, secret);
}

constexpr std::chrono::milliseconds between_tries{50};  // for the election of a leader

}  // namespace

std::string write_death_notice(const DeathNoticePlan& plan) {
    std::vector<std::string> daemons;
    for (const auto& daemon : plan.daemons) daemons.push_back(describe(daemon));
    std::string notice = cat(join(daemons, " "), '\n');
    native::append_frame(notice, plan.hello);
    native::append_frame(notice, native::AgentDied{.why = plan.why});
    return notice;
}

void deliver_death_notice(std::string_view notice, Duration limit, const native::KeyedHash& secret) {
    const auto line_end = notice.find('\n');
    if (line_end == std::string_view::npos) return;
    std::vector<SocketAddress> daemons;
    for (const auto word : split(notice.substr(0, line_end), ' ')) {
        const auto endpoint = parse_endpoint(word, 0);
        const auto address = endpoint && endpoint->port != 0
                                 ? SocketAddress::from_numeric(endpoint->host, endpoint->port)
                                 : std::nullopt;
        if (address) daemons.push_back(*address);
    }
    const auto frames = notice.substr(line_end + 1);
    const Deadline all(limit);
    for (bool any_follower = true; any_follower && all.left_ms() > 0;) {
        any_follower = false;
        for (const auto& daemon : daemons) {
            const auto share = limit / static_cast<std::int64_t>(daemons.size());
            const Deadline one(std::min<Duration>(share, std::chrono::milliseconds(all.left_ms())));
            const auto outcome = send_to(daemon, frames, secret, one);
            if (outcome == Outcome::taken) return;
            any_follower = any_follower || outcome == Outcome::stands_by;
        }
        if (any_follower) ::poll(nullptr, 0, static_cast<int>(between_tries.count()));
    }
}

}  // namespace muster::launcher
