// The agents' connections: messages in, actions of the pure Server out, each released when its records are persisted.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/memory_budget.h"
#include "rendezvous/base/time_histogram.h"
#include "rendezvous/net/action_gate.h"
#include "rendezvous/net/session.h"
#include "rendezvous/net/state_watch.h"
#include "rendezvous/net/station.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

class AgentDialect final : public Dialect {
  public:
    struct Hooks {
        std::function<void(const FreshStore& fresh)> fresh_store;
        std::function<void(const std::string& job)> job_forgotten;
        std::function<void()> leading;  ///< May be empty, as the next one.
        std::function<void(const std::string& leader)> standing_by;
        std::function<void(const std::vector<Event>& events, Instant at)> events;  ///< Log lines among them.
    };

    /// `kept` is the state that an earlier daemon kept in `state`.
    AgentDialect(ServerConfig config, std::unique_ptr<StateStore> state, KeptState kept, Hooks hooks, Instant now);
    ~AgentDialect() override;

    void attach(Station& station) { station_ = &station; }
    /// The port is closing: from now on, ignores the ends of connections.
    void shut_down() { shutting_down_ = true; }

    [[nodiscard]] std::string_view name() const override { return "agent"; }
    [[nodiscard]] std::string refusal(std::string_view why) const override;
    std::unique_ptr<Session> begin(Connection& connection, Instant now) override;

    /// Call every turn. Returns when it is due again.
    Instant turn(Instant now);

    /// The store has seen a torchrun agent.
    void torchrun_connected(const std::string& job, const std::string& peer, Instant now) {
        if (server_) step(TorchrunConnected{job, peer}, now);
    }

    [[nodiscard]] std::string status_json(Instant now) const;
    /// The same without the jobs: what concerns the daemon.
    [[nodiscard]] std::string daemon_json(Instant now) const;
    /// rounds/status.h. Nothing: unknown.
    [[nodiscard]] std::optional<std::string> agents_json(const std::string& job, Instant now) const {
        return server_ ? server_->agents_json(job, now) : std::optional<std::string>();
    }
    [[nodiscard]] JobPieces job_pieces(const std::string& job, Instant now, SeenNodes& seen) const;
    [[nodiscard]] std::vector<JobSummary> summaries(Instant now) const {
        return server_ ? server_->summaries(now) : std::vector<JobSummary>{};
    }
    /// Why the state cannot be written now, and since when; empty: it can.
    [[nodiscard]] const std::optional<StateWatch::Stall>& state_stall() const { return watch_.stall(); }
    [[nodiscard]] std::size_t unpersisted_count() const { return gate_.waiting_count(); }
    [[nodiscard]] std::uint64_t message_count() const { return message_count_; }
    /// From giving a step's records to the state until it has kept them.
    [[nodiscard]] const TimeHistogram& write_times() const { return write_times_; }
    /// How much later than promised agents were heard.
    [[nodiscard]] TimeHistogram heartbeat_lateness() const {
        return server_ ? server_->heartbeat_lateness() : TimeHistogram();
    }
    [[nodiscard]] bool leads() const { return server_.has_value(); }
    /// How often another daemon began to lead, or this one, as far as this one knows.
    [[nodiscard]] std::uint64_t leader_change_count() const { return leader_change_count_; }
    /// The local addresses at which agents of other hosts joined, most used first. Status requests and commands do not
    /// count, because they may use another network.
    [[nodiscard]] std::vector<std::string> reached_at() const;

  private:
    class AgentSession;

    [[nodiscard]] std::string with_state(std::string status, Instant now) const;
    void lead(KeptState kept, Instant now);
    void stand_by(std::string leader);
    void note_leader(const std::string& leader, std::string text, Instant now);
    void turn_away(Connection& connection);
    void note_where(const Connection& connection);
    void step(const ServerEvent& event, Instant now);
    void forget_steps();
    void judge_unjoined(Instant now);
    void weigh_steps();
    void persisted(std::uint64_t sequence);
    void carry_out(const ActionGate::Actions& actions);
    void carry_out(const SendTo& send);

    ServerConfig config_;
    std::optional<Server> server_;                     ///< none while it stands by
    std::string leader_;                               ///< where agents go then
    std::map<std::string, std::uint64_t> reached_at_;  ///< how often; no more than this host has addresses
    std::unique_ptr<StateStore> state_;
    Hooks hooks_;
    ActionGate gate_;
    StateWatch watch_;
    std::map<ConnectionId, AgentSession*> sessions_;               ///< All.
    std::set<ConnectionId> agents_;                                ///< Those that have joined a job or resumed a round.
    std::deque<std::pair<ConnectionId, Instant>> unjoined_until_;  ///< in the order of their time
    std::optional<MemoryCharge> steps_held_;
    std::deque<std::pair<std::uint64_t, Instant>>
        writes_;  ///< That the state has not kept yet: number, and since when.
    TimeHistogram write_times_;
    std::uint64_t leader_change_count_ = 0;
    std::optional<std::string> last_leader_;
    std::string encoded_;   ///< The memory of the last message, for the next one.
    bool is_held_ = false;  ///< The server knows of the stall.
    Station* station_ = nullptr;
    Instant deadline_ = no_deadline;  // the server's, asked after every step
    std::uint64_t message_count_ = 0;
    bool shutting_down_ = false;
};

}  // namespace muster::rendezvous
