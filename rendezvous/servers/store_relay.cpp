#include "rendezvous/servers/store_relay.h"

#include <map>
#include <optional>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/net/station.h"
#include "rendezvous/servers/relay_upstream.h"

namespace muster::rendezvous {

namespace {

// Unwritten bytes towards the store from which on clients are not read, and until which they are not read again.
constexpr std::size_t unsent_bytes_max = std::size_t{4} << 20;

}  // namespace

class StoreRelay::Implementation final : public Dialect, EventLoop::Ticker {
  public:
    Implementation(EventLoop& loop, std::unique_ptr<Listener> listener, SocketAddress store,
                   const StoreRelayConfig& config)
        : loop_(loop),
          store_(store),
          store_name_(describe(config.store)),
          limits_(config.limits),
          station_(loop, std::move(listener), Dialects{.c10d = this}, config.limits,
                   std::make_shared<MemoryBudget>(config.limits.memory_bytes_max)) {}
    ~Implementation() override {
        loop_.remove(*this);
        upstream_.reset();
    }

    Result<void> start() {
        loop_.add(*this);
        return station_.start();
    }
    [[nodiscard]] std::uint16_t port() const { return station_.port(); }

    [[nodiscard]] std::string_view name() const override { return "store relay"; }
    std::unique_ptr<Session> begin(Connection& connection, Instant) override {
        return std::make_unique<Client>(*this, connection);
    }
    /// What this turn's clients have sent goes out in one write.
    Instant turn(Instant) override {
        if (upstream_) upstream_->flush();
        return no_deadline;
    }

  private:
    class Client final : public Session {
      public:
        Client(Implementation& relay, Connection& connection) : relay_(relay), connection_(connection) {}
        void received(std::string_view bytes, Instant now) override {
            if (id_ == 0 && !relay_.admit(*this, now)) return;
            relay_.upstream_->send(id_, bytes);
            if (relay_.upstream_->unsent_bytes() <= unsent_bytes_max) return;
            connection_.pause_reading();
            relay_.has_paused_ = true;
        }
        void ended(std::string_view, Instant) override { relay_.leave(id_); }

        Implementation& relay_;
        Connection& connection_;
        std::uint32_t id_ = 0;  ///< 0: the store has not been told of it.
    };

    /// Gives the client its number. False: there is no way to the store.
    bool admit(Client& client, Instant now) {
        if (!upstream_) {
            upstream_ = std::make_unique<RelayUpstream>(
                loop_, limits_.unread_max,
                RelayUpstream::Events{.piece = [this](const auto& piece) { deliver(piece); },
                                      .drained = [this] { read_again(); },
                                      .ended = [this](const std::string& why) { lost(why); }});
            if (const auto dialed = upstream_->dial(store_); !dialed) {
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
        if (clients_.erase(id) > 0 && upstream_) upstream_->send(id, {});
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
        if (!std::exchange(has_paused_, false)) return;
        for (const auto& [id, client] : clients_) client->connection_.resume_reading();
    }

    void lost(const std::string& why) {
        if (!clients_.empty())  // else the round is over
            station_.log_limited(cat("relay to the store at ", store_name_, ": the connection ended (", why,
                                     "); this node's workers lose the store"),
                                 std::chrono::steady_clock::now());
        loop_.retire(std::exchange(upstream_, nullptr));
        for (const auto& [id, client] : std::exchange(clients_, {}))
            client->connection_.finish("the connection to the store ended");
    }

    EventLoop& loop_;
    const SocketAddress store_;
    const std::string store_name_;
    const NetLimits limits_;
    std::unique_ptr<RelayUpstream> upstream_;
    std::map<std::uint32_t, Client*> clients_;  ///< those that the store knows
    std::uint32_t last_id_ = 0;
    bool has_paused_ = false;
    Station station_;  ///< last: its destructor ends sessions of the above
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
    Result<void> serving;
    loop.invoke([&] {
        relay->implementation_ = std::make_unique<Implementation>(loop, std::move(*listener), *store, config);
        serving = relay->implementation_->start();
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

}  // namespace muster::rendezvous
