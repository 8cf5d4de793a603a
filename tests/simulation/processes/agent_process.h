// One launcher process of the simulated world: the real Supervisor and the real ClientCore over simulated TCP and
// simulated processes. It is what agent/driver/agent.cpp and rendezvous/client/client.cpp are in the real one: no
// decisions.
//
// It can be stopped (SIGSTOP: what arrives waits for SIGCONT), killed, or lose its host's power. Its guardian lives on.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/supervision/supervisor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/client_core.h"
#include "rendezvous/wire/native/codec.h"
#include "tests/simulation/host/network.h"
#include "tests/simulation/invariants/invariants.h"
#include "tests/simulation/processes/guardian.h"
#include "tests/simulation/sabotage.h"

namespace muster::simulation {

/// What every part of a world shares.
struct Surroundings {
    EventQueue& events;
    Chronicle& chronicle;
    Network& network;
    Invariants& invariants;
    Plant plant = Plant::none;
};

class AgentProcess final : public StreamHandler, private ProcessWitness {
  public:
    struct Setting {
        std::string name;
        HostIndex host = 0;
        const HostClock* clock = nullptr;
        std::vector<Address> daemons;  ///< those of the endpoints in `client`
        rendezvous::ClientConfig client;
        agent::SupervisorConfig supervisor;
        std::uint16_t port_first = 0;  ///< its stores' ports, one after another
        std::function<WorkerScript(Round round, std::uint32_t local_rank)> script;
        std::function<std::int32_t()> next_pid;
        /// What its health check finds now; and how long a check takes.
        std::function<agent::HealthChecked()> check;
        std::function<Duration()> check_takes;
        /// A worker of this agent failed by itself: its peers may be about to notice.
        std::function<void(Round round)> worker_failed;
        /// The daemon has told it to leave.
        std::function<void()> drained;
        /// It has exited by itself.
        std::function<void()> finished;
    };
    enum class Life { running, stopped, finished, killed };

    AgentProcess(Surroundings& world, Random random, Setting setting);

    /// As a command names it.
    [[nodiscard]] std::string node() const { return cat(setting_.client.node.host, ':', setting_.client.node.pid); }
    void begin();
    // -- what befalls it --
    void request_stop(int signal);
    void stop();
    void go_on();
    void kill();
    void power_lost();

    [[nodiscard]] Life life() const { return life_; }
    [[nodiscard]] bool alive() const { return life_ == Life::running || life_ == Life::stopped; }
    [[nodiscard]] bool finished() const { return life_ == Life::finished; }
    [[nodiscard]] const std::optional<agent::Ending>& ending() const { return ending_; }
    [[nodiscard]] agent::Phase phase() const { return supervisor_.phase(); }
    [[nodiscard]] Round round() const { return round_; }
    [[nodiscard]] HostIndex host() const { return setting_.host; }
    [[nodiscard]] Incarnation incarnation() const { return setting_.client.node.incarnation; }
    [[nodiscard]] const std::string& name() const { return setting_.name; }
    [[nodiscard]] Guardian& guardian() { return guardian_; }
    [[nodiscard]] std::optional<Moment> stop_requested_at() const { return stop_requested_at_; }

    void stream_opened(StreamId stream) override;
    void stream_failed(StreamId stream, rendezvous::ConnectionFailed failed) override;
    void stream_accepted(StreamId stream, std::uint16_t port) override;
    void stream_received(StreamId stream, std::string bytes) override;
    void stream_closed(StreamId stream, std::string why) override;

  private:
    struct Ask {
        native::FrameReader reader{native::Sender::peer};
        native::PeerAsk question;
    };

    void process_started(Round round, std::int32_t pid, ProcessKind kind) override;
    void process_ended(Round round, std::int32_t pid) override;
    void process_held(std::int32_t pid) override;
    void process_resumed(Round round, std::int32_t pid) override;
    void worker_failed(Round round, std::int32_t pid) override;
    void end_reported(Round round, std::int32_t pid) override;

    /// Runs `work` in the process's own loop: now, when it continues, or never if it is gone.
    void post(std::function<void()> work);
    void run_posted();
    void tick();
    void arm();
    void feed();
    void fence_held_workers();
    void hold_workers(const std::vector<std::uint32_t>& local_ranks);
    void give(const rendezvous::ClientInput& input) { carry_out(client_.step(input, now())); }
    void tell(const agent::SupervisorEvent& event);
    void carry_out(std::vector<rendezvous::ClientOutput> outputs);
    void carry_out_one(rendezvous::ClientOutput& output);
    void act(agent::SupervisorAction& action);
    [[nodiscard]] Address daemon_address() const;
    void check_health();
    void start_workers(const agent::StartWorkers& start);
    void finish(agent::Ending ending);
    void ask(const rendezvous::QueryPeer& request);
    void answered(StreamId stream, std::optional<native::PeerAnswer> answer);
    void forge_answer(const native::PeerAsk& ask, std::optional<native::PeerAnswer>& answer);
    void daemon_bytes(const std::string& bytes);
    void peer_bytes(StreamId stream, const std::string& bytes);
    void asked_bytes(StreamId stream, const std::string& bytes);
    void judge_doom(DoomCause otherwise);
    void note_doom(const agent::SupervisorEvent& event);
    void close(std::optional<StreamId>& stream);
    void flush();
    void guardian_reports_death();
    [[nodiscard]] Instant now() const { return setting_.clock->local(world_.events.now()); }
    [[nodiscard]] agent::WorkerNotes notes(Instant at) const;

    Surroundings& world_;
    Random random_;
    Setting setting_;
    rendezvous::ClientCore client_;
    agent::Supervisor supervisor_;
    Guardian guardian_;
    Life life_ = Life::running;
    std::optional<agent::Ending> ending_;
    std::deque<std::function<void()>> posted_;
    bool in_loop_ = false;
    Alarm alarm_;
    Moment armed_for_ = never;
    Instant armed_deadline_ = no_deadline;

    std::optional<StreamId> attempt_;  ///< to a daemon, under way
    std::optional<StreamId> stream_;   ///< to the daemon, open
    std::vector<StreamId> older_;      ///< fell silent; closed when the daemon is heard on stream_
    native::FrameReader reader_{native::Sender::daemon};
    std::string outbox_;
    native::Peers peers_;           ///< the last that the daemon sent
    std::map<StreamId, Ask> asks_;  ///< our questions to peers
    std::string round_secret_;
    std::map<std::uint32_t, native::PeerAnswer> recorded_;  ///< the last "lost" of each peer
    std::map<StreamId, native::FrameReader> askers_;        ///< peers' questions to us
    std::uint16_t port_ = 0;
    std::uint16_t port_count_ = 0;
    Round round_ = no_round;
    std::optional<DoomCause> doom_;  ///< of the present round
    native::Message doom_said_;
    bool doom_judged_ = false;
    int join_count_ = 0;
    agent::HealthChecked found_{};      ///< by the last check that found something; for a plant
    std::vector<std::uint32_t> keeps_;  ///< whom the supervisor named last
    std::optional<Moment> stop_requested_at_;
    std::vector<std::unique_ptr<StreamHandler>> messengers_;
};

}  // namespace muster::simulation
