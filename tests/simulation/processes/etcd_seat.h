// A daemon's place beside the simulated etcd: the real EtcdCore, whose questions take their time, get lost, or find
// nobody. It is what etcd/etcd_state.cpp is in the real one.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "rendezvous/rounds/job_record.h"
#include "rendezvous/state/etcd/etcd_core.h"
#include "tests/simulation/processes/agent_process.h"
#include "tests/unit/rendezvous/state/simulated_etcd.h"

namespace muster::simulation {

/// The etcd of all daemons, and who cannot reach it.
struct SharedEtcd {
    test::SimulatedEtcd keys;
    bool is_away = false;  ///< it has no leader of its own
    std::set<HostIndex> cut_off;
    Duration slowest = 3ms;  ///< one way
};

/// Its own clock: it is no daemon's.
inline Instant etcd_time(Moment moment) {
    return Instant(1000s) + moment;
}

class EtcdSeat {
  public:
    struct Hooks {
        std::function<void(std::function<void()> work)> post;  ///< into the daemon's own loop
        std::function<void(rendezvous::KeptState kept)> leads;
        std::function<void(std::string leader)> stands_by;
        std::function<void(std::uint64_t sequence)> persisted;
    };

    EtcdSeat(Surroundings& world, Random random, const HostClock& clock, SharedEtcd& etcd, Address self, Hooks hooks);

    void begin();
    void write(std::uint64_t sequence, std::vector<rendezvous::Record> records);
    [[nodiscard]] bool may_speak() const;

  private:
    void carry_out(rendezvous::EtcdCore::Outputs outputs);
    void send(const rendezvous::SendToEtcd& ask);
    void answered(std::uint64_t id, const Result<rendezvous::EtcdAnswer>& answer);
    void arm();
    [[nodiscard]] bool reaches() const { return !etcd_.is_away && !etcd_.cut_off.contains(host_); }
    [[nodiscard]] Instant now() const { return clock_.local(world_.events.now()); }

    Surroundings& world_;
    Random random_;
    const HostClock& clock_;
    SharedEtcd& etcd_;
    HostIndex host_;
    Hooks hooks_;
    rendezvous::EtcdCore core_;
    Alarm alarm_;
    /// What is planned finds out by it that the daemon is gone.
    std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace muster::simulation
