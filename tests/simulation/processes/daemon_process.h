// The daemon of the simulated world: the real Server and the real codec behind simulated TCP. It is what
// servers/daemon.cpp is in the real one. It can be killed (and forgets everything, or goes on from its state) and
// paused.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "rendezvous/net/action_gate.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/simulation/host/disk.h"
#include "tests/simulation/processes/agent_process.h"
#include "tests/simulation/processes/etcd_seat.h"

namespace muster::simulation {

class DaemonProcess final : public StreamHandler {
  public:
    DaemonProcess(Surroundings& world, Random random, const HostClock& clock, Address address)
        : world_(world), random_(random), clock_(clock), address_(address), alarm_(world.events, [this] { tick(); }) {}

    /// `disk`: where its state is kept, and what it goes on from; null: nowhere.
    void start(rendezvous::ServerConfig config, Disk* disk);
    /// One of several that share their state: it leads when etcd says so.
    void stand_for_election(rendezvous::ServerConfig config, SharedEtcd& etcd);
    /// SIGKILL: its memory is lost.
    void kill();
    /// Tells the agent to leave, if it has a connection.
    void drain(Incarnation agent, std::string node);
    void pause();
    void go_on();
    [[nodiscard]] bool running() const { return running_; }
    [[nodiscard]] bool leads() const { return server_ != nullptr; }
    [[nodiscard]] Address address() const { return address_; }
    /// From now on it serves TLS, too.
    void serve_tls(Tls tls) { tls_ = std::move(tls); }
    [[nodiscard]] bool paused() const { return paused_; }
    [[nodiscard]] std::string status() const { return server_ ? server_->status_json(now()) : "{}"; }

    void stream_opened(StreamId) override {}
    void stream_failed(StreamId, rendezvous::ConnectionFailed) override {}
    void stream_accepted(StreamId stream, std::uint16_t port) override;
    void stream_received(StreamId stream, std::string bytes) override;
    void stream_closed(StreamId stream, std::string why) override;

  private:
    void lead(rendezvous::KeptState kept);
    void stand_by(std::string leader);
    void turn_away(StreamId stream);
    void post(std::function<void()> work);
    void run_posted();
    void tick();
    void arm();
    void give(const rendezvous::ServerEvent& event);
    void keep(std::uint64_t sequence, std::vector<rendezvous::Record> records);
    void persisted(std::uint64_t sequence);
    void carry_out(const rendezvous::ActionGate::Actions& actions);
    void carry_out(const rendezvous::ServerAction& action);
    void send(rendezvous::SendTo said);
    void corrupt(native::Message& message) const;
    void mend_proof(StreamId stream, native::Message& message);
    void misread_budgets(native::JobTerms& terms) const;
    void misread_finding(StreamId stream, native::Join& join);
    [[nodiscard]] bool forgets(StreamId stream, const native::Message& message) const;
    [[nodiscard]] Incarnation caller(StreamId stream) const;
    void bytes(StreamId stream, const std::string& bytes);
    void introduce(StreamId stream);
    void drop(StreamId stream, std::string why);
    [[nodiscard]] Instant now() const;

    Surroundings& world_;
    Random random_;
    const HostClock& clock_;
    Address address_;
    Tls tls_;
    Moment started_{};
    std::unique_ptr<rendezvous::Server> server_;
    bool running_ = false;
    Disk* disk_ = nullptr;
    rendezvous::ServerConfig config_;
    std::unique_ptr<EtcdSeat> seat_;
    std::string leader_;        ///< where a daemon that stands by sends agents
    std::set<StreamId> known_;  ///< the connections that server_ knows
    std::uint64_t reign_ = 0;   ///< of all daemons', the number of this one's last
    rendezvous::ActionGate gate_;
    std::uint64_t life_ = 0;
    /// By sequence, the steps that wait for the disk: how many messages had been heard when each was decided.
    std::map<std::uint64_t, std::uint64_t> decided_after_;
    std::optional<std::uint64_t> held_since_;  ///< of what is carried out just now, where it has waited
    bool paused_ = false;
    std::deque<std::function<void()>> posted_;
    bool in_loop_ = false;
    Alarm alarm_;
    Instant armed_deadline_ = no_deadline;
    /// The other end of a connection, with the address that it had when it was accepted.
    struct Caller {
        std::string address;
        std::string proven_job;
        native::FrameReader reader{native::Sender::agent};
    };
    std::map<StreamId, Caller> callers_;
    std::map<Incarnation, StreamId> newest_;    ///< for the plants and for drain()
    std::map<StreamId, native::Hello> hellos_;  // this and the next for the plants only
    std::map<StreamId, std::string> nonces_;
    std::set<StreamId> guessed_;             // a stranger as one who attacks: it does not ask for the daemon's proof
    std::map<StreamId, StreamId> replaced_;  ///< newer to older, for the plants only
    std::string last_finding_;               // this and the next three for the plants only
    std::map<std::pair<std::size_t, std::string>, std::set<Incarnation>> reporters_;  // by job and kind of finding
    std::set<StreamId> boasters_;
    bool believes_ = false;
};

}  // namespace muster::simulation
