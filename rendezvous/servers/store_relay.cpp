#include "rendezvous/servers/store_relay.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/net/station.h"
#include "rendezvous/servers/relay_upstream.h"
#include "rendezvous/servers/round_store.h"

namespace muster::rendezvous {

namespace {

// Unwritten bytes towards the store from which on clients are not read, and until which they are not read again.
constexpr std::size_t unsent_bytes_max = std::size_t{4} << 20;

// Unwritten bytes towards a client from which on it is not read, as the store would not serve it.
constexpr std::size_t client_unsent_bytes_max = std::size_t{1} << 20;

// The store would close the whole relay for one client too many (StoreConfig::relayed_per_relay_max).
NetLimits relay_limits(NetLimits limits) {
    limits.connections_max = std::min(limits.connections_max, limits.unproven_per_source_max);
    return limits;
}

}  // namespace

class StoreRelay::Implementation final : public Dialect, EventLoop::Ticker {
  public:
    Implementation(EventLoop& loop, std::unique_ptr<Listener> listener, SocketAddress store,
                   const StoreRelayConfig& config)
        : loop_(loop),
          store_(store),
          store_name_(describe(config.store)),
          limits_(config.limits),
          dial_timeout_(config.dial_timeout),
          client_id_max_(config.client_id_max),
          tls_(config.key.empty() ? nullptr : PskContext::client(std::string(store_identity), config.key)),
          memory_(config.limits.memory_of_port()),
          station_(loop, std::move(listener), Dialects{.c10d = this}, relay_limits(config.limits), memory_) {}
    ~Implementation() override {
        loop_.remove(*this);
        upstream_.reset();
    }

    Result<void> start() {
        loop_.add(*this);
        return station_.start();
    }
    [[nodiscard]] std::uint16_t port() const { return station_.port(); }
    [[nodiscard]] std::size_t held_bytes() const { return memory_->bytes(); }

    [[nodiscard]] std::string_view name() const override { return "store relay"; }
    std::unique_ptr<Session> begin(Connection& connection, Instant now) override {
        auto client = std::make_unique<Client>(*this, connection);
        silent_.emplace(connection.id(), Silent{connection, now + limits_.handshake_timeout});
        connections_.emplace(connection.id(), &connection);
        if (holds_back_) connection.pause_reading();
        return client;
    }
    /// What this turn's clients have sent goes out in one write.
    Instant turn(Instant now) override {
        if (upstream_) upstream_->flush();
        const Instant next = close_silent(now);
        return upstream_ ? std::min(next, upstream_->elapsed(now)) : next;
    }

  private:
    class Client final : public Session {
      public:
        Client(Implementation& relay, Connection& connection) : relay_(relay), connection_(connection) {}
        void received(std::string_view bytes, Instant now) override {
            if (id_ == 0 && !relay_.admit(*this, now)) return;
            relay_.upstream_->send(id_, bytes);
            relay_.hold_back();
            if (!relay_.may_read(connection_)) connection_.pause_reading();
        }
        void drained(Instant) override {
            if (relay_.may_read(connection_)) connection_.resume_reading();
        }
        void ended(std::string_view, Instant) override {
            relay_.connections_.erase(connection_.id());
            relay_.silent_.erase(connection_.id());
            relay_.leave(id_);
        }

        Implementation& relay_;
        Connection& connection_;
        std::uint32_t id_ = 0;  ///< 0: the store has not been told of it.
    };

    struct Silent {
        Connection& connection;
        Instant deadline;
    };

    /// Beside a live client a silent one stays: torch <= 2.0 opens a second connection that never sends.
    Instant close_silent(Instant now) {
        while (!silent_.empty() && silent_.begin()->second.deadline <= now) {
            Connection& connection = silent_.begin()->second.connection;
            silent_.erase(silent_.begin());
            if (clients_.empty() && !holds_back_) connection.finish("no request within the handshake timeout");
        }
        return silent_.empty() ? no_deadline : silent_.begin()->second.deadline;
    }

    /// False: too much waits for the store (read_again() comes) or for the client (drained() comes).
    [[nodiscard]] bool may_read(const Connection& connection) const {
        return !holds_back_ && connection.unsent_bytes() <= client_unsent_bytes_max;
    }

    /// Too much waits for the store: nobody is read, also no client that has bytes ready in this very turn. Each of
    /// thousands could add one read.
    void hold_back() {
        if (holds_back_ || !upstream_ || upstream_->unsent_bytes() <= unsent_bytes_max) return;
        holds_back_ = true;
        for (const auto& [id, connection] : connections_) connection->pause_reading();
    }

    /// Gives the client its number. False: there is no way to the store.
    bool admit(Client& client, Instant now) {
        silent_.erase(client.connection_.id());
        if (upstream_ && last_id_ >= client_id_max_) lost("its client numbers are used up");
        if (!upstream_) {
            last_id_ = 0;
            upstream_ = std::make_unique<RelayUpstream>(
                loop_, limits_.unread_max, tls_ ? std::make_unique<TlsStream>(tls_, memory_) : nullptr, memory_,
                RelayUpstream::Events{.piece = [this](const auto& piece) { deliver(piece); },
                                      .drained = [this] { read_again(); },
                                      .ended = [this](const std::string& why) { lost(why); }});
            if (const auto dialed = upstream_->dial(store_, now + dial_timeout_); !dialed) {
                upstream_.reset();
                client.connection_.finish("no way to the store");
                station_.log_limited(cat("relay to the store at ", store_name_, ": ", dialed.error().context), now);
                return false;
            }
        }
        client.id_ = ++last_id_;
        clients_.emplace(client.id_, &client);
        return true;
    }

    void leave(std::uint32_t id) {
        if (clients_.erase(id) == 0 || !upstream_) return;
        upstream_->send(id, {});
        hold_back();
    }

    void deliver(const c10d::RelayReader::Piece& piece) {
        const auto found = clients_.find(piece.client);
        if (found == clients_.end()) return;  // it has left meanwhile
        if (piece.bytes.empty())
            found->second->connection_.finish("the store closed it");
        else
            found->second->connection_.send(piece.bytes);
    }

    void read_again() {
        if (!std::exchange(holds_back_, false)) return;
        for (const auto& [id, connection] : connections_)
            if (may_read(*connection)) connection->resume_reading();
    }

    void lost(const std::string& why) {
        if (!clients_.empty())  // else the round is over
            station_.log_limited(cat("relay to the store at ", store_name_, ": the connection ended (", why,
                                     "); this node's workers lose the store. Look at the node of rank 0",
                                     tls_ ? "" : "; without --store-relay each worker connects by itself"),
                                 std::chrono::steady_clock::now());
        upstream_->close();
        loop_.retire(std::exchange(upstream_, nullptr));
        read_again();
        for (const auto& [id, client] : std::exchange(clients_, {})) {
            client->id_ = 0;  // the next connection counts anew
            client->connection_.finish("the connection to the store ended");
        }
    }

    EventLoop& loop_;
    const SocketAddress store_;
    const std::string store_name_;
    const NetLimits limits_;
    const Duration dial_timeout_;
    const std::uint32_t client_id_max_;
    const std::shared_ptr<const PskContext> tls_;  ///< Null: clear text.
    const std::shared_ptr<MemoryBudget> memory_;
    std::unique_ptr<RelayUpstream> upstream_;
    std::map<std::uint32_t, Client*> clients_;         ///< those that the store knows
    std::map<ConnectionId, Connection*> connections_;  ///< all
    std::map<ConnectionId, Silent> silent_;            ///< those that have sent nothing, by deadline, as ids ascend
    std::uint32_t last_id_ = 0;
    bool holds_back_ = false;  ///< Until the store has taken all.
    Station station_;          ///< last: its destructor ends sessions of the above
};

StoreRelay::StoreRelay(EventLoop& loop) : loop_(loop) {}

Result<std::unique_ptr<StoreRelay>> StoreRelay::open(EventLoop& loop, const StoreRelayConfig& config) {
    const auto store = SocketAddress::from_numeric(config.store.host, config.store.port);
    if (!store) return Error{Errc::invalid_argument, cat("store relay: ", config.store.host, " is not numeric")};
    ListenConfig listen;
    listen.address = "127.0.0.1";
    listen.local_users = config.local_users;
    auto listener = Listener::open(listen);
    if (!listener) return with_context(listener.error(), "the store relay");
    auto relay = std::unique_ptr<StoreRelay>(new StoreRelay(loop));
    const auto serving = loop.ask([&] {
        relay->implementation_ = std::make_unique<Implementation>(loop, std::move(*listener), *store, config);
        return relay->implementation_->start();
    });
    if (!serving) return with_context(serving.error(), "the store relay");
    return relay;
}

StoreRelay::~StoreRelay() {
    loop_.invoke([&] { implementation_.reset(); });
}

std::uint16_t StoreRelay::port() const {
    return implementation_->port();
}

std::size_t StoreRelay::held_bytes() const {
    return loop_.ask([&] { return implementation_->held_bytes(); });
}

}  // namespace muster::rendezvous
