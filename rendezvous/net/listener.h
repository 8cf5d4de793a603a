// A listening TCP port and the sockets that it accepts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/address_set.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/peer_user.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/peer_log.h"

namespace muster::rendezvous {

struct ListenConfig {
    std::string address;  ///< a numeric address or a name of this host; empty: all addresses, IPv6 and IPv4
    PortRange ports;      ///< the first free one of the range is taken
    LocalUsers local_users = LocalUsers::own;
    std::shared_ptr<const AllowedSources> sources = nullptr;  ///< null: everybody
};

/// An accepted connection: the caller owns `fd` (non-blocking, close-on-exec).
struct AcceptedSocket {
    int fd = -1;
    std::string address;  ///< the peer's numeric address; IPv4 also when it came in through an IPv6 socket
    std::uint16_t port = 0;
    PeerUsers::Judgement judgement;  ///< of who is at the other end, if that is on this host
    bool keyed_http_only = false;    ///< the objection does not hold for HTTP inside TLS
};

/// Accepts on the loop's thread from `start` on. All errors of accept are survived: without descriptors the waiting
/// connections are accepted with a spare one and closed at once, so that the loop never spins; a log line says so.
class Listener final : public EventLoop::Handler {
  public:
    using OnAccept = std::function<void(AcceptedSocket)>;

    /// Binds and listens at once: the kernel queues connections until `start`. Errors: already_exists with the holder
    /// of the port where that can be known, permission_denied, invalid_argument for an address that is not ours.
    static Result<std::unique_ptr<Listener>> open(const ListenConfig& config);
    /// Takes over a socket that listens already (a service manager's), and closes it in the end; what waits in its
    /// queue is accepted from `start` on. Of `config`, it takes who is served. Errors: invalid_argument for what is no
    /// listening TCP socket; it stays open.
    static Result<std::unique_ptr<Listener>> adopt(int fd, const ListenConfig& config = {});
    ~Listener() override;

    /// Call on the loop's thread. `on_accept` must not destroy this listener. Errors are EventLoop::add's.
    Result<void> start(EventLoop& loop, OnAccept on_accept);
    enum class Others {
        refused,     ///< closed as they are accepted, before anything is read
        keyed_http,  ///< served by HTTP inside TLS, where they prove a key, and by nothing else
    };
    /// What becomes of other sources from now on. On the loop's thread once started.
    void serve_only(std::shared_ptr<const AllowedSources> sources, Others others = Others::refused) {
        sources_ = std::move(sources);
        others_ = others;
    }
    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// For socket options, which accepted connections inherit.
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] const std::string& address() const { return address_; }

    void ready(std::uint32_t events, Instant now) override;
    /// When `resume` must be called because accepting was suspended; no_deadline usually.
    [[nodiscard]] Instant resume_at() const { return resume_at_; }
    void resume(Instant now);

  private:
    Listener(int fd, const ListenConfig& config);
    bool is_served(const SocketAddress& peer);
    void turn_away(int fd, const SocketAddress& peer, Instant now);
    bool accept_one(Instant now);
    bool shed_one(Instant now);
    void suspend(Instant now, int error_number);

    EventLoop* loop_ = nullptr;
    OnAccept on_accept_;
    int fd_ = -1;
    int spare_fd_ = -1;  // given up for a moment when no other is left
    std::uint16_t port_ = 0;
    std::string address_;
    Instant resume_at_ = no_deadline;
    Instant complained_at_{};
    std::optional<PeerUsers> peer_users_;  // empty: all users are served
    std::shared_ptr<const AllowedSources> sources_;
    Others others_ = Others::refused;
    OwnAddresses own_addresses_;
    std::uint64_t turned_away_count_ = 0;  // since the last line about it
    Instant told_at_{};
    PeerLog peer_log_;
};

/// The process that listens on TCP `port` of this host: "process 4242 (python3)"; empty if unknown (another user's
/// process, another namespace, already gone).
std::string describe_port_holder(std::uint16_t port);

}  // namespace muster::rendezvous
