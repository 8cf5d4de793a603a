#include "rendezvous/dialects/store_dialect.h"

#include <random>
#include <utility>

#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

StoreConfig store_config(const NetLimits& limits, std::shared_ptr<MemoryBudget> memory) {
    StoreConfig config;
    config.memory = std::move(memory);
    config.connection_count_max = limits.connections_max;
    config.relayed_per_relay_max = limits.unproven_per_source_max;
    config.handshake_timeout = limits.handshake_timeout;
    config.hash_seed = std::random_device{}();
    return config;
}

class StoreDialect::StoreSession final : public Session, public StorePeer {
  public:
    StoreSession(StoreDialect& dialect, Connection& connection) : dialect_(dialect), connection_(connection) {}

    /// False: the store does not want it, and has said why through close().
    bool begin(Instant now) {
        now_ = now;
        handle_ = dialect_.store_.accept(*this, connection_.peer(), now);
        return handle_ != nullptr;
    }

    void received(std::string_view bytes, Instant now) override {
        now_ = now;
        if (!heard_ && dialect_.is_served_ && !dialect_.is_served_(connection_)) return close(dialect_.why_not_);
        heard_ = true;
        obey(dialect_.store_.receive(*handle_, bytes, now));
    }
    std::span<char> landing() override { return dialect_.store_.landing(*handle_); }
    void landed(std::size_t size, Instant now) override {
        now_ = now;
        obey(dialect_.store_.landed(*handle_, size, now));
    }
    void drained(Instant now) override {
        now_ = now;
        if (may_go_on(dialect_.store_.resume(*handle_, now))) connection_.resume_reading();
    }
    void ended(std::string_view why, Instant) override {
        if (log_enabled(LogLevel::debug)) log(LogLevel::debug, "store: ", connection_.describe_peer(), " left: ", why);
        if (handle_ != nullptr) dialect_.store_.ended(*handle_);
    }

    void send(std::string_view bytes) override { connection_.send(bytes); }
    void send(SharedValue value) override { connection_.send(std::move(value)); }
    void close(std::string why) override {
        dialect_.station_->log_limited(cat("store connection from ", connection_.describe_peer(), " closed: ", why),
                                       now_);
        connection_.finish(std::move(why));
    }
    void client_closed(const std::string& why) override {
        dialect_.station_->log_limited(
            cat("store client behind the relay ", connection_.describe_peer(), " closed: ", why), now_);
    }

  private:
    void obey(StoreFlow flow) {
        if (connection_.closing()) return;
        if (!may_go_on(flow)) connection_.pause_reading();
        connection_.receive_at_least(dialect_.store_.missing_bytes(*handle_));
    }

    // What the core counts are the answers of one call; here is what all of them have left unwritten. Where that pauses
    // it, there is output, so drained() will come.
    [[nodiscard]] bool may_go_on(StoreFlow flow) const {
        return flow == StoreFlow::read && connection_.unsent_bytes() < dialect_.output_bytes_pause_;
    }

    StoreDialect& dialect_;
    Connection& connection_;
    StoreConnection* handle_ = nullptr;
    Instant now_{};
    bool heard_ = false;
};

std::unique_ptr<Session> StoreDialect::begin(Connection& connection, Instant now) {
    auto talk = std::make_unique<StoreSession>(*this, connection);
    if (!talk->begin(now)) return nullptr;
    return talk;
}

Instant StoreDialect::turn(Instant now) {
    if (store_.deadline() <= now) store_.elapsed(now);
    if (station_->memory()->is_short()) store_.sweep();
    return store_.deadline();
}

}  // namespace muster::rendezvous
