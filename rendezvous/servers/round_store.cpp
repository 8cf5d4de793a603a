#include "rendezvous/servers/round_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rendezvous/dialects/store_dialect.h"
#include "rendezvous/net/station.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/servers/peer_dialect.h"

namespace muster::rendezvous {

namespace {

/// A viewer that is stopped (Ctrl-Z, a pager) does not hold up the end of a launcher for longer.
constexpr Duration viewer_silence_max = 1s;

}  // namespace

class RoundStore::Implementation final : EventLoop::Ticker {
  public:
    Implementation(EventLoop& loop, std::unique_ptr<Listener> listener, RoundStoreConfig config)
        : loop_(loop),
          limits_(config.limits),
          sources_(config.listen.sources),
          memory_(config.limits.memory_of_port()),
          store_(store_config(config.limits, memory_)),
          peers_(loop, std::move(config.answer), std::move(config.post)),
          logs_keys_(std::move(config.logs.keys)),
          port_(listener->port()),
          listener_(std::move(listener)) {
        if (config.logs.streams)
            logs_.emplace(std::move(config.logs.pages), HttpDialect::Access{}, std::move(config.logs.late),
                          std::move(config.logs.streams));
    }
    Result<void> serve(const RoundService& service) {
        // Viewers of log files come from any host, with the job's key; --allow-from closes the port to all others.
        const bool lets_viewers_in = logs_ && !logs_keys_.empty() && !sources_;
        if (listener_ && service.store)
            listener_->serve_only(clients_of(service),
                                  lets_viewers_in ? Listener::Others::keyed_http : Listener::Others::refused);
        if (service.store && !service.key.empty()) close_door(service.key);
        return start(service.store ? &store_ : nullptr);
    }
    /// Serves everybody whom the listener accepts.
    Result<void> serve_all() { return start(&store_); }
    ~Implementation() override {
        if (station_) loop_.remove(*this);
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    Instant turn(Instant now) override {
        note_viewers(now);
        // The station writes after this look: a viewer that stops then is seen at the next one.
        const auto look_at = when_read_ ? std::min(viewers_until(), now + viewer_silence_max) : no_deadline;
        return std::min(store_.turn(now), look_at);
    }
    bool retire() {
        listener_.reset();
        if (station_) station_->retire_all_but(logs_ ? &*logs_ : nullptr, std::chrono::steady_clock::now());
        store_.clear("the round is over");
        return viewers_until() > Instant::min();
    }
    void when_read(std::function<void()> done) {
        waits_since_ = std::chrono::steady_clock::now();
        when_read_ = std::move(done);
        note_viewers(waits_since_);
    }

  private:
    /// Instant::min(): there are none.
    [[nodiscard]] Instant viewers_until() const {
        if (!station_ || !logs_) return Instant::min();
        return station_->unsent_until(*logs_, waits_since_, viewer_silence_max);
    }
    void note_viewers(Instant now) {
        if (when_read_ && viewers_until() <= now) std::exchange(when_read_, {})();
    }

    [[nodiscard]] std::shared_ptr<const AllowedSources> clients_of(const RoundService& service) const {
        auto allowed = std::make_shared<AllowedSources>();
        allowed->advice =
            "it is no address of a node of this round; if one of the job's nodes has it (NAT), give --allow-from the "
            "networks of all nodes";
        if (sources_) allowed->addresses = sources_->addresses;
        for (const auto& client : service.clients) allowed->addresses.add(client);
        return allowed;
    }

    void close_door(const std::string& key) {
        store_key_ = key;
        store_.serve_only(
            [this](const Connection& from) {
                return from.is_own() || from.key_identity() == store_identity || own_addresses_.contains(from.peer());
            },
            "it does not prove the key of the round, which --store-door and --wire-security encrypt ask of other "
            "hosts; give all nodes of the job the same options");
    }

    Result<void> start(StoreDialect* store) {
        if (!listener_) return {};
        station_.emplace(
            loop_, std::move(listener_),
            Dialects{.c10d = store, .http = logs_ ? &*logs_ : nullptr, .native = &peers_, .tls = tls_context()},
            limits_, memory_);
        store_.attach(*station_);
        peers_.attach(*station_);
        if (logs_) logs_->attach(*station_);
        loop_.add(*this);
        return station_->start();
    }

    /// Null: neither the store nor a viewer of log files has a key here.
    [[nodiscard]] std::shared_ptr<const PskContext> tls_context() const {
        if (store_key_.empty() && logs_keys_.empty()) return nullptr;
        return PskContext::server([store = store_key_, logs = logs_keys_](std::string_view identity) {
            if (identity == store_identity) return store;
            const auto found = std::ranges::find(logs, identity, &ControlKey::identity);
            return found == logs.end() ? std::string() : found->key;
        });
    }

    EventLoop& loop_;
    const NetLimits limits_;
    const std::shared_ptr<const AllowedSources> sources_;
    const std::shared_ptr<MemoryBudget> memory_;
    StoreDialect store_;
    PeerDialect peers_;
    std::optional<HttpDialect> logs_;
    std::string store_key_;  ///< --store-door. Empty: in clear text.
    const std::vector<ControlKey> logs_keys_;
    OwnAddresses own_addresses_;
    std::function<void()> when_read_;  ///< Empty: nobody waits for the viewers.
    Instant waits_since_{};
    const std::uint16_t port_;
    std::unique_ptr<Listener> listener_;  ///< until it serves
    std::optional<Station> station_;      ///< last: its destructor ends sessions of the above
};

RoundStore::RoundStore(EventLoop& loop) : loop_(loop) {}

Result<std::unique_ptr<RoundStore>> RoundStore::open(EventLoop& loop, RoundStoreConfig config) {
    auto listener = MUSTER_TRY(Listener::open(config.listen));
    auto store = std::unique_ptr<RoundStore>(new RoundStore(loop));
    const bool waits = config.waits;
    const auto serving = loop.ask([&] {
        store->implementation_ = std::make_unique<Implementation>(loop, std::move(listener), std::move(config));
        return waits ? Result<void>() : store->implementation_->serve_all();
    });
    if (!serving) return with_context(serving.error(), "the round's store");
    return store;
}

RoundStore::~RoundStore() {
    loop_.invoke([&] { implementation_.reset(); });
}

Result<void> RoundStore::serve(const RoundService& service) {
    const auto serving = loop_.ask([&] { return implementation_->serve(service); });
    if (!serving) return with_context(serving.error(), "the round's store");
    return serving;
}

bool RoundStore::retire() {
    return loop_.ask([&] { return implementation_->retire(); });
}

void RoundStore::when_read(std::function<void()> done) {
    loop_.invoke([&] { implementation_->when_read(std::move(done)); });
}

std::uint16_t RoundStore::port() const {
    return implementation_->port();
}

}  // namespace muster::rendezvous
