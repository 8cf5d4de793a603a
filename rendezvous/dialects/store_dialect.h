// PyTorch's TCPStore on a port: the pure StoreServer (rendezvous/store) over the station's connections.
#pragma once

#include <functional>
#include <utility>

#include "rendezvous/net/session.h"
#include "rendezvous/net/station.h"
#include "rendezvous/store/store_server.h"

namespace muster::rendezvous {

/// The store's configuration: the port's limits, its memory budget and an unpredictable hash seed.
StoreConfig store_config(const NetLimits& limits, std::shared_ptr<MemoryBudget> memory);

class StoreDialect final : public Dialect {
  public:
    explicit StoreDialect(StoreConfig config) : store_(config), output_bytes_pause_(config.output_bytes_pause) {}

    /// Where log lines about its connections go; before the first connection. The station outlives every session.
    void attach(Station& station) { station_ = &station; }

    [[nodiscard]] std::string_view name() const override { return "store"; }
    std::unique_ptr<Session> begin(Connection& connection, Instant now) override;

    /// From now on, connections for which `is_served` is false are closed at their first byte. `why`: for the log.
    void serve_only(std::function<bool(const Connection&)> is_served, std::string why) {
        is_served_ = std::move(is_served);
        why_not_ = std::move(why);
    }
    /// A new round of the static back end: empties the map and closes the old connections.
    void clear(std::string_view why) { store_.clear(why); }
    [[nodiscard]] StoreUsage usage() const { return store_.usage(); }
    /// Call every turn: judges silent connections. Returns when it is due again.
    Instant turn(Instant now);

  private:
    class StoreSession;

    StoreServer store_;
    const std::size_t output_bytes_pause_;
    std::function<bool(const Connection&)> is_served_;  ///< empty: all
    std::string why_not_;
    Station* station_ = nullptr;
};

}  // namespace muster::rendezvous
