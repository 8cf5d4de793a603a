#include "rendezvous/servers/round_store.h"

#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/dialects/store_dialect.h"
#include "rendezvous/net/station.h"
#include "rendezvous/servers/peer_dialect.h"

namespace muster::rendezvous {

class RoundStore::Implementation final : EventLoop::Ticker {
  public:
    Implementation(EventLoop& loop, std::unique_ptr<Listener> listener, RoundStoreConfig config)
        : loop_(loop),
          memory_(std::make_shared<MemoryBudget>(config.limits.memory_bytes_max)),
          store_(store_config(config.limits, memory_)),
          peers_(loop, std::move(config.answer), std::move(config.post)),
          port_(listener->port()),
          station_(loop, std::move(listener), {.c10d = &store_, .http = nullptr, .native = &peers_}, config.limits,
                   memory_) {
        store_.attach(station_);
        peers_.attach(station_);
        loop_.add(*this);
    }
    Result<void> start() { return station_.start(); }
    ~Implementation() override { loop_.remove(*this); }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    Instant turn(Instant now) override { return store_.turn(now); }

  private:
    EventLoop& loop_;
    const std::shared_ptr<MemoryBudget> memory_;
    StoreDialect store_;
    PeerDialect peers_;
    const std::uint16_t port_;
    Station station_;  // last: its destructor ends sessions of the above
};

RoundStore::RoundStore(EventLoop& loop) : loop_(loop) {}

Result<std::unique_ptr<RoundStore>> RoundStore::open(EventLoop& loop, RoundStoreConfig config) {
    auto listener = Listener::open(config.listen);
    if (!listener) return listener.error();
    auto store = std::unique_ptr<RoundStore>(new RoundStore(loop));
    Result<void> serving;
    loop.invoke([&] {
        store->implementation_ = std::make_unique<Implementation>(loop, std::move(*listener), std::move(config));
        serving = store->implementation_->start();
    });
    if (!serving) return with_context(serving.error(), "the round's store");
    return store;
}

RoundStore::~RoundStore() {
    loop_.invoke([&] { implementation_.reset(); });
}

std::uint16_t RoundStore::port() const {
    return implementation_->port();
}

}  // namespace muster::rendezvous
