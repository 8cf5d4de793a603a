#include "rendezvous/dialects/agent_dialect.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/status.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::rendezvous {

class AgentDialect::AgentSession final : public Session {
  public:
    AgentSession(AgentDialect& dialect, Connection& connection)
        : dialect_(dialect), connection_(connection), held_(dialect.station_->memory()) {}

    void received(std::string_view bytes, Instant now) override {
        reader_.append(bytes);
        for (;;) {
            auto message = reader_.next();
            if (!message) return dialect_.station_->refuse(connection_, message.error().context, now);
            if (!*message) break;
            if (!take(std::move(**message), now)) return;
        }
        held_.set(reader_.heap_bytes());
        if (holds_half() && !joined_ && !dialect_.station_->memory()->has_room(0))
            dialect_.station_->refuse(connection_, "half a message of a stranger, and the memory is used up", now);
    }
    [[nodiscard]] bool holds_half() const { return reader_.held_bytes() > 0; }
    /// False: it has joined, or is refused.
    bool may_stay_unjoined(Instant now) {
        if (!joined_ && holds_half())
            dialect_.station_->refuse(connection_,
                                      cat("it holds half a message and has not joined within ",
                                          describe(dialect_.station_->limits().unjoined_max)),
                                      now);
        return !joined_ && !connection_.closing();
    }
    void ended(std::string_view why, Instant now) override {
        dialect_.sessions_.erase(connection_.id());
        dialect_.agents_.erase(connection_.id());
        if (dialect_.shutting_down_ || !known_) return;
        dialect_.step(ConnectionEnded{.connection = connection_.id(), .why = std::string(why)}, now);
    }
    void introduce(Instant now) {
        known_ = true;
        dialect_.step(ConnectionAccepted{.connection = connection_.id(),
                                         .peer = connection_.peer(),
                                         .proven_job = std::string(job_of_identity(connection_.key_identity())),
                                         .is_local = is_loopback(connection_.peer())},
                      now);
    }
    /// The server is gone, and a connection that it knew is sent to the leader.
    void forget() {
        if (std::exchange(known_, false)) dialect_.turn_away(connection_);
    }

  private:
    // False when the connection hears no more.
    bool take(native::Message message, Instant now) {
        ++dialect_.message_count_;
        // Whoever says Hello and no more has not said anything yet.
        if (!std::holds_alternative<native::Hello>(message)) connection_.establish();
        // A ping waits for no disk: rounds that run are not harmed by those that wait.
        if (dialect_.gate_.waiting_bytes() >= dialect_.station_->limits().unpersisted_bytes_max &&
            !std::holds_alternative<native::Ping>(message)) {
            dialect_.station_->refuse(connection_, "the state store does not keep up", now);
            return false;
        }
        if (!dialect_.server_) {
            dialect_.turn_away(connection_);
            return false;
        }
        // One that was accepted while this daemon stood by.
        if (!known_) introduce(now);
        const bool is_agent =
            std::holds_alternative<native::Join>(message) || std::holds_alternative<native::Resume>(message);
        // The step may close this very connection; its object lives until the turn's end.
        dialect_.step(Received{.connection = connection_.id(), .message = std::move(message)}, now);
        if (connection_.closing()) return false;
        if (is_agent && !std::exchange(joined_, true)) {
            connection_.rise(Standing::joined);
            dialect_.agents_.insert(connection_.id());
            dialect_.note_where(connection_);
        }
        return true;
    }

    AgentDialect& dialect_;
    Connection& connection_;
    native::FrameReader reader_{native::Sender::agent};
    MemoryCharge held_;    ///< half a message
    bool known_ = false;   ///< The server knows the connection.
    bool joined_ = false;  ///< it is an agent's, and was not refused
};

AgentDialect::AgentDialect(ServerConfig config, std::unique_ptr<StateStore> state, KeptState kept, Hooks hooks,
                           Instant now)
    : config_(std::move(config)), state_(std::move(state)), hooks_(std::move(hooks)) {
    state_->persisted = [this](std::uint64_t sequence) { persisted(sequence); };
    state_->failing = [this](std::string why) { watch_.failed(std::move(why), std::chrono::steady_clock::now()); };
    state_->leads = [this](KeptState found) { lead(std::move(found), std::chrono::steady_clock::now()); };
    state_->stands_by = [this](std::string leader) { stand_by(std::move(leader)); };
    if (!state_->starts_as_follower()) lead(std::move(kept), now);
}

AgentDialect::~AgentDialect() = default;

/// Everybody begins anew: connections that were turned away are closed already, and others are introduced when they
/// speak.
void AgentDialect::lead(KeptState kept, Instant now) {
    // A nonce of the reign before would let its words be said again.
    if (config_.secret) config_.secret_seed = random_nonce();
    const auto count = kept.jobs.size();
    server_.emplace(config_, now, std::move(kept));
    forget_steps();
    deadline_ = server_->deadline();
    leader_.clear();
    if (!state_->starts_as_follower()) return;
    note_leader({}, cat("this daemon is the leader; ", count, count == 1 ? " job resumed" : " jobs resumed"), now);
    if (hooks_.leading) hooks_.leading();
}

/// A time without a leader, and the first one, are no changes. Empty: this daemon.
void AgentDialect::note_leader(const std::string& leader, std::string text, Instant now) {
    if (last_leader_ && *last_leader_ != leader) ++leader_change_count_;
    last_leader_ = leader;
    hooks_.events({{.kind = EventKind::daemon_leader, .text = std::move(text), .facts = {.host = leader}}}, now);
}

/// What was decided and not kept is decided by another one, and nobody has heard of it.
void AgentDialect::stand_by(std::string leader) {
    if (!leader.empty())
        note_leader(leader, cat("this daemon is a follower; the leader is ", leader), std::chrono::steady_clock::now());
    leader_ = std::move(leader);
    if (hooks_.standing_by) hooks_.standing_by(leader_);
    forget_steps();
    if (!server_) return;
    server_.reset();
    agents_.clear();
    deadline_ = no_deadline;
    for (const auto& [id, session] : sessions_) session->forget();
}

void AgentDialect::forget_steps() {
    gate_ = {};
    writes_.clear();
    if (steps_held_) steps_held_->set(0);
    watch_ = {};
    is_held_ = false;
}

void AgentDialect::turn_away(Connection& connection) {
    std::string bytes;
    if (const auto& stall = watch_.stall()) native::append_frame(bytes, native::StateStalled{stall->why, false});
    native::append_frame(bytes, native::NotLeader{leader_});
    connection.send(bytes);
    connection.finish("this daemon does not lead");
}

std::string AgentDialect::status_json(Instant now) const {
    return with_state(server_ ? server_->status_json(now) : std::string(), now);
}

std::string AgentDialect::daemon_json(Instant now) const {
    return with_state(server_ ? server_->daemon_json(now) : std::string(), now);
}

JobPieces AgentDialect::job_pieces(const std::string& job, Instant now, SeenNodes& seen) const {
    return server_ ? server_->job_pieces(job, now, seen) : without_nodes("null", now, seen);
}

std::string AgentDialect::with_state(std::string status, Instant now) const {
    const auto& stall = watch_.stall();
    if (server_ && !stall) return status;
    nlohmann::json out{{"jobs", nlohmann::json::array()}, {"standby", true}, {"leader", leader_}};
    if (server_) out = nlohmann::json::parse(status);
    if (stall) {
        const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - stall->since);
        out["state_stalled"] = {{"why", stall->why}, {"for_ms", since.count()}, {"steps", gate_.waiting_count()}};
    }
    return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::unique_ptr<Session> AgentDialect::begin(Connection& connection, Instant now) {
    connection.limit_unsent(station_->limits().agent_unsent_bytes_max);
    tune_thin_stream(connection.fd());
    auto talk = std::make_unique<AgentSession>(*this, connection);
    sessions_[connection.id()] = talk.get();
    if (server_) talk->introduce(now);
    unjoined_until_.push_back({connection.id(), now + station_->limits().unjoined_max});
    return talk;
}

/// Looks at each connection that does not join once in this time: it may not hold half a message meanwhile.
void AgentDialect::judge_unjoined(Instant now) {
    while (!unjoined_until_.empty() && unjoined_until_.front().second <= now) {
        const auto id = unjoined_until_.front().first;
        unjoined_until_.pop_front();
        const auto found = sessions_.find(id);
        if (found != sessions_.end() && found->second->may_stay_unjoined(now))
            unjoined_until_.push_back({id, now + station_->limits().unjoined_max});
    }
}

std::string AgentDialect::refusal(std::string_view why) const {
    std::string bytes;
    native::append_frame(bytes, native::Refused{native::RefusalReason::secret, std::string(why)});
    return bytes;
}

Instant AgentDialect::turn(Instant now) {
    judge_unjoined(now);
    for (const auto& word : watch_.turn(agents_, gate_, now)) carry_out(word);
    const bool stalls = watch_.stall().has_value();
    if (server_ && stalls != std::exchange(is_held_, stalls))
        step(stalls ? ServerEvent(DecisionsHeld{}) : ServerEvent(DecisionsFreed{}), now);
    if (deadline_ <= now) step(Elapsed{}, now);
    const auto unjoined = unjoined_until_.empty() ? no_deadline : unjoined_until_.front().second;
    return std::min({deadline_, watch_.deadline(), unjoined});
}

void AgentDialect::persisted(std::uint64_t sequence) {
    const auto released = gate_.persisted(sequence);
    weigh_steps();
    const auto now = std::chrono::steady_clock::now();
    for (; !writes_.empty() && writes_.front().first <= sequence; writes_.pop_front())
        write_times_.add(now - writes_.front().second);
    watch_.kept(gate_.waiting_count() > 0, now);
    carry_out(released);
}

void AgentDialect::weigh_steps() {
    if (!steps_held_) steps_held_.emplace(station_->memory());
    steps_held_->set(gate_.waiting_bytes());
}

void AgentDialect::note_where(const Connection& connection) {
    const auto local = SocketAddress::local_of(connection.fd()).numeric();
    if (local != connection.peer() && !is_loopback(local)) ++reached_at_[local];
}

std::vector<std::string> AgentDialect::reached_at() const {
    std::vector<std::pair<std::string, std::uint64_t>> counted(reached_at_.begin(), reached_at_.end());
    std::stable_sort(counted.begin(), counted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::vector<std::string> addresses;
    for (auto& [address, count] : counted) addresses.push_back(std::move(address));
    return addresses;
}

void AgentDialect::step(const ServerEvent& event, Instant now) {
    ServerStep step = server_->step(event, now);
    deadline_ = server_->deadline();
    hooks_.events(step.why, now);
    const bool has_records = !step.records.empty();
    std::size_t record_bytes = 0;
    for (const auto& record : step.records) record_bytes += record.key.size() + record.value.size();
    for (const auto& [id, proven] : step.known)
        if (Connection* connection = station_->find(id)) connection->rise(proven ? Standing::proven : Standing::seated);
    auto entered = gate_.enter(std::move(step.actions), has_records, record_bytes);
    weigh_steps();
    carry_out(entered.released);
    if (!has_records) return;
    watch_.given(now);
    writes_.emplace_back(entered.sequence, std::chrono::steady_clock::now());
    state_->write(entered.sequence, std::move(step.records));
}

void AgentDialect::carry_out(const ActionGate::Actions& actions) {
    for (const ServerAction& action : actions) {
        if (const auto* send = std::get_if<SendTo>(&action)) {
            carry_out(*send);
        } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
            if (Connection* connection = station_->find(close->connection)) connection->finish(close->why);
        } else if (const auto* fresh = std::get_if<FreshStore>(&action)) {
            hooks_.fresh_store(*fresh);
        } else if (const auto* forgotten = std::get_if<JobForgotten>(&action)) {
            hooks_.job_forgotten(forgotten->job);
        } else if (const auto* suffers = std::get_if<SufferFault>(&action)) {
            // The answer that was sent before it goes out first.
            if (const auto done = signal_self(native::self_signals(suffers->fault)); !done)
                log(LogLevel::warning, done.error().context);
        }
    }
}

void AgentDialect::carry_out(const SendTo& send) {
    std::string bytes = std::exchange(encoded_, {});
    bytes.clear();
    native::append_frame(bytes, send.message);
    // A small message is copied into each block and shares its write with what else goes there; a big one is shared.
    constexpr std::size_t worth_sharing_bytes = 4'096;
    const Buffer shared = send.connections.size() > 1 && bytes.size() >= worth_sharing_bytes
                              ? charged_bytes(std::move(bytes), station_->memory())
                              : nullptr;
    for (const ConnectionId id : send.connections) {
        Connection* connection = station_->find(id);
        if (connection == nullptr) continue;
        if (!state_->may_speak())
            station_->refuse(*connection, "this daemon's right to lead has run out", std::chrono::steady_clock::now());
        else if (shared)
            connection->send(shared);
        else
            connection->send(bytes);
    }
    if (bytes.size() < worth_sharing_bytes) encoded_ = std::move(bytes);
}

}  // namespace muster::rendezvous
