// Routes connections and messages to jobs; Job decides what a message means.
#include "rendezvous/rounds/server.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/job.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/ledgers/gate.h"
#include "rendezvous/rounds/ledgers/yielding_jobs.h"
#include "rendezvous/rounds/terms.h"

namespace muster::rendezvous {

using native::RefusalReason;
using native::Refused;

class Server::Implementation {
  public:
    Implementation(ServerConfig config, Instant started, KeptState kept);

    ServerStep step(const ServerEvent& event, Instant now);
    [[nodiscard]] Instant deadline() const {
        if (held_since_) return no_deadline;
        const auto first = agenda_.empty() ? no_deadline : agenda_.begin()->first;
        // Without a job it looks at the clock alone, to see whether it stood still.
        const bool may_know_none =
            jobs_.empty() && config_.start_hold != StartHold::none && stepped_at_ < start_.at + complete_after;
        return may_know_none ? std::min(first, stepped_at_ + start_look) : first;
    }
    [[nodiscard]] std::vector<const Job*> jobs() const;
    [[nodiscard]] const PastJobs& past() const { return past_; }
    [[nodiscard]] const ServerConfig& config() const { return config_; }
    [[nodiscard]] const TimeHistogram& heartbeat_lateness() const { return lateness_; }

  private:
    struct Connection {
        ConnectionAccepted accepted;
        std::optional<native::Hello> hello;
        bool may_act_for_agent = false;       ///< it is the connection that counts of the agent that Hello named
        std::optional<Gate::Question> asked;  ///< until it has proved to know the job's secret
        bool proven = false;
        bool closing = false;  ///< nothing that still arrives on it is read
    };
    struct Entry {
        Job job;
        Instant due = no_deadline;  ///< its place in agenda_
    };
    using Connections = std::map<ConnectionId, Connection>;

    void on(const ConnectionAccepted& event, const Turn& turn);
    void on(const ConnectionEnded& event, const Turn& turn);
    void on(const Received& event, const Turn& turn);
    void on(const TorchrunConnected& event, const Turn& turn);
    void on(const Elapsed& event, const Turn& turn);
    void on(const DecisionsHeld&, const Turn& turn) { held_since_ = turn.now; }
    void on(const DecisionsFreed& event, const Turn& turn);

    void hello(Connections::iterator from, const native::Hello& hello, const Turn& turn);
    void challenge(Connections::iterator from, const Turn& turn);
    void proof(Connections::iterator from, const native::Proof& proof, const Turn& turn);
    void wrong_secret(Connections::iterator from, std::string why, const Turn& turn);
    void command(Connections::iterator from, const native::Command& command, const Turn& turn);
    void hear(Connections::iterator from, const native::Join& join, const Turn& turn);
    void hear(Connections::iterator from, const native::Resume& resume, const Turn& turn);
    void hear(Connections::iterator from, const native::Ping& ping, const Turn& turn);
    void hear(Connections::iterator from, const native::AgentDied& died, const Turn& turn);
    template <class Message>
    void hear(Connections::iterator from, const Message& message, const Turn& turn);

    Entry* find(const Connection& connection);
    Entry* find_or_create(Connections::iterator from, const native::JobTerms& terms, const Turn& turn);
    void update(Entry& entry, const Turn& turn);
    void judge_released(const std::string& id, Round next_round, std::vector<HeldJoin> released, const Turn& turn);
    void schedule(Entry& entry, Instant now);
    bool make_room(const Turn& turn);
    std::string take_store(const std::string& id, const native::Join& join, bool is_back, const Turn& turn);
    void note_complete(const Turn& turn);
    void refuse(Connections::iterator from, RefusalReason reason, std::string why, const Turn& turn);
    static void close(Connections::iterator connection, std::string why, const Turn& turn) {
        turn.step.actions.push_back(CloseConnection{connection->first, std::move(why)});
    }
    [[nodiscard]] static Arrival arrival(Connections::iterator from);

    ServerConfig config_;
    /// After the start of a daemon that found no state: the longest lease that is in use, with a margin.
    static constexpr Duration complete_after = 60s;
    static constexpr Duration start_look = 200ms;

    DaemonStart start_;
    Instant stepped_at_;
    bool complete_;  ///< no job runs that is not in jobs_ (or this is not kept)
    Gate gate_;
    Connections connections_;
    std::map<std::string, Entry> jobs_;
    std::set<std::pair<Instant, std::string>> agenda_;  ///< the jobs by deadline
    YieldingJobs yielding_;
    PastJobs past_;
    std::optional<Instant> held_since_;  ///< DecisionsHeld
    Instant refusal_is_old_at_{};        ///< a refusal for a limit of this daemon was told; until then no other is
    std::uint64_t refusals_untold_ = 0;
    TimeHistogram lateness_;
};

Server::Implementation::Implementation(ServerConfig config, Instant started, KeptState kept)
    : config_(std::move(config)),
      start_{started, kept.complete},
      stepped_at_(started),
      complete_(kept.complete || !config_.keep_records),
      gate_(config_.secret, config_.secret_seed) {
    if (kept.complete) config_.start_hold = StartHold::none;
    for (auto& job : kept.jobs) {
        const auto id = job.facts.id;
        schedule(jobs_.try_emplace(id, Entry{Job(config_, std::move(job), started)}).first->second, started);
    }
}

ServerStep Server::Implementation::step(const ServerEvent& event, Instant now) {
    ServerStep out;
    const Turn turn{now, out};
    // The driver promised to come by deadline(). Where it is late, agents' words may lie unread in the sockets.
    if (const auto promised = deadline(); promised != no_deadline && now > promised) {
        // Nor had agents that look for it this time to come back. The words that it reads then are many steps.
        start_.at += now - std::max(promised, stepped_at_);
        const auto* what = stepped_at_ > promised ? "" : "this daemon was suspended";
        for (auto& [id, entry] : jobs_) {
            entry.job.on_stall(now - promised, what, turn);
            entry.job.take_events(turn);
        }
    }
    stepped_at_ = now;
    std::visit([&](const auto& happened) { on(happened, turn); }, event);
    note_complete(turn);
    for (const auto& action : out.actions)
        if (const auto* closed = std::get_if<CloseConnection>(&action))
            if (const auto found = connections_.find(closed->connection); found != connections_.end())
                found->second.closing = true;
    return out;
}

void Server::Implementation::on(const ConnectionAccepted& event, const Turn&) {
    connections_[event.connection].accepted = event;
}

void Server::Implementation::on(const ConnectionEnded& event, const Turn& turn) {
    const auto found = connections_.find(event.connection);
    if (found == connections_.end()) return;
    if (auto* entry = find(found->second)) {
        entry->job.on_connection_ended(found->second.hello->node.incarnation, event.connection, turn);
        update(*entry, turn);
    }
    connections_.erase(found);
}

void Server::Implementation::on(const TorchrunConnected& event, const Turn& turn) {
    const auto found = jobs_.find(event.job);
    if (found == jobs_.end()) return;
    found->second.job.on_torchrun(event.peer, turn);
    update(found->second, turn);
}

void Server::Implementation::on(const Elapsed&, const Turn& turn) {
    std::vector<std::string> due;
    for (const auto& [when, id] : agenda_) {
        if (when > turn.now) break;
        due.push_back(id);
    }
    for (const auto& id : due) {
        auto& entry = jobs_.at(id);
        entry.job.on_elapsed(turn);
        update(entry, turn);
    }
}

void Server::Implementation::on(const DecisionsFreed&, const Turn& turn) {
    if (!held_since_) return;
    const auto held = turn.now - *std::exchange(held_since_, std::nullopt);
    for (auto& [id, entry] : jobs_) {
        entry.job.on_decisions_freed(held, turn);
        entry.job.take_events(turn);
    }
    on(Elapsed{}, turn);
}

void Server::Implementation::on(const Received& event, const Turn& turn) {
    const auto from = connections_.find(event.connection);
    if (from == connections_.end() || from->second.closing) return;
    if (const auto* first = std::get_if<native::Hello>(&event.message)) return hello(from, *first, turn);
    if (!from->second.hello) return refuse(from, RefusalReason::malformed, "the first message must be Hello", turn);
    if (const auto* shown = std::get_if<native::Proof>(&event.message)) return proof(from, *shown, turn);
    if (gate_.is_locked() && !from->second.proven)
        return refuse(from, RefusalReason::secret, "the proof of the job's secret must come before anything else",
                      turn);
    if (const auto* order = std::get_if<native::Command>(&event.message)) return command(from, *order, turn);
    std::visit([&](const auto& message) { hear(from, message, turn); }, event.message);
}

// ---- the messages ----

void Server::Implementation::hello(Connections::iterator from, const native::Hello& hello, const Turn& turn) {
    if (hello.version != native::protocol_version)
        return refuse(from, RefusalReason::version,
                      cat("this daemon uses protocol version ", native::protocol_version, " and the agent version ",
                          hello.version, "; install one version of muster on all nodes"),
                      turn);
    auto& connection = from->second;
    if (connection.hello) return refuse(from, RefusalReason::malformed, "a second Hello on one connection", turn);
    if (hello.job.empty()) return refuse(from, RefusalReason::malformed, "the job's name (--rdzv-id) is empty", turn);
    connection.hello = hello;
    if (!connection.accepted.proven_job.empty() && connection.accepted.proven_job != hello.job)
        return wrong_secret(
            from, cat(label(hello.node), " has shown the key of job '", connection.accepted.proven_job, "' only"),
            turn);
    connection.proven = !connection.accepted.proven_job.empty();
    if (connection.proven) turn.step.known.push_back({from->first, true});
    if (!hello.challenge.empty() || (gate_.is_locked() && !connection.proven)) challenge(from, turn);
}

void Server::Implementation::challenge(Connections::iterator from, const Turn& turn) {
    auto& connection = from->second;
    const auto& hello = *connection.hello;
    auto why = gate_.objection(label(hello.node), hello, connection.accepted.is_local || connection.proven);
    if (!gate_.is_locked()) return refuse(from, RefusalReason::secret, std::move(why), turn);
    if (!why.empty()) return wrong_secret(from, std::move(why), turn);
    connection.asked = gate_.ask(hello.job);
    turn.send(from->first, native::Challenge{connection.asked->nonce, {}});
}

void Server::Implementation::proof(Connections::iterator from, const native::Proof& proof, const Turn& turn) {
    auto& connection = from->second;
    if (!connection.asked) return refuse(from, RefusalReason::malformed, "an unexpected Proof", turn);
    const auto& hello = *connection.hello;
    auto own_proof = Gate::answer(*connection.asked, hello, proof.proof);
    if (!own_proof) return wrong_secret(from, wrong_proof(label(hello.node), hello), turn);
    connection.proven = true;
    turn.send(from->first, native::Challenge{{}, *std::move(own_proof)});
    connection.asked.reset();
}

void Server::Implementation::wrong_secret(Connections::iterator from, std::string why, const Turn& turn) {
    const auto& source = from->second.accepted.peer;
    // Closed without a word: one whose secret is mended tries again, and so finds the gate open later.
    if (gate_.is_shut_for(source, turn.now)) return close(from, "too many wrong secrets from its address", turn);
    gate_.note_wrong(source, turn.now);
    const auto more = gate_.is_shut_for(source, turn.now);
    turn.tell(EventKind::node_refused, cat("refused from ", source, ", job '", from->second.hello->job, "': ", why,
                                           more ? "; further wrong secrets from there are ignored for some time" : ""));
    refuse(from, RefusalReason::secret, std::move(why), turn);
}

/// From an agent of the job; or from anybody who has proved to know the secret.
void Server::Implementation::command(Connections::iterator from, const native::Command& command, const Turn& turn) {
    auto* entry = find(from->second);
    const auto from_agent = from->second.hello->node.incarnation;
    const bool is_agent = entry != nullptr && from->second.may_act_for_agent && entry->job.knows(from_agent);
    if (is_agent && !from->second.proven && !entry->job.may_command(from_agent, command)) {
        turn.send(from->first,
                  native::CommandAnswer{
                      command.number, false,
                      cat(label(from->second.hello->node), " has been in no round of job '", entry->job.id(),
                          "' that this daemon knows, and only nodes that have may send this command; "
                          "send it from one of those, or with the job's secret (MUSTER_SECRET_FILE)")});
        return;
    }
    if (!is_agent && !from->second.proven)
        return refuse(from, RefusalReason::secret,
                      "commands are accepted only from the job's own agents, or with its secret (MUSTER_SECRET_FILE); "
                      "send this one from a node of the job",
                      turn);
    if (entry == nullptr) {
        // Names no other job: the key of one job is proved here, and those of the others are not.
        turn.send(from->first,
                  native::CommandAnswer{command.number, false,
                                        cat("this daemon has no job '", from->second.hello->job,
                                            "'; GET /status lists its jobs, on its host or with the token that musterd "
                                            "--status-token prints")});
        return;
    }
    entry->job.on_command(from->first, command, turn);
    update(*entry, turn);
}

void Server::Implementation::hear(Connections::iterator from, const native::Join& join, const Turn& turn) {
    auto why = wrong_with(join, config_.nodes_max);
    if (!why.empty()) return refuse(from, RefusalReason::malformed, std::move(why), turn);
    const bool is_back = join.last_round != no_round;
    const auto& id = from->second.hello->job;
    if (!is_back && !jobs_.contains(id)) why = too_few_connections(id, join, config_);
    if (why.empty()) why = take_store(id, join, is_back, turn);
    if (!why.empty()) return refuse(from, RefusalReason::limit, std::move(why), turn);
    auto* entry = find_or_create(from, join.terms, turn);
    if (entry == nullptr) return;
    from->second.may_act_for_agent = entry->job.on_join(arrival(from), join, turn);
    if (!from->second.may_act_for_agent) close(from, "refused", turn);
    update(*entry, turn);
}

void Server::Implementation::hear(Connections::iterator from, const native::Resume& resume, const Turn& turn) {
    auto why = wrong_with(resume.as_joined, config_.nodes_max);
    if (why.empty()) why = wrong_with(resume);
    if (!why.empty()) return refuse(from, RefusalReason::malformed, std::move(why), turn);
    why = take_store(from->second.hello->job, resume.as_joined, true, turn);
    if (!why.empty()) return refuse(from, RefusalReason::limit, std::move(why), turn);
    auto* entry = find_or_create(from, resume.as_joined.terms, turn);
    if (entry == nullptr) return;
    from->second.may_act_for_agent = entry->job.on_resume(arrival(from), resume, turn);
    if (!from->second.may_act_for_agent) close(from, "refused", turn);
    update(*entry, turn);
}

void Server::Implementation::hear(Connections::iterator from, const native::Ping& ping, const Turn& turn) {
    turn.send(from->first, native::Pong{ping.sequence, ping.sent_ns, turn.now.time_since_epoch().count()});
    auto* const entry = from->second.may_act_for_agent ? find(from->second) : nullptr;
    if (entry == nullptr) return;
    if (const auto late = entry->job.on_heard(from->second.hello->node.incarnation, turn)) lateness_.add(*late);
    update(*entry, turn);
}

void Server::Implementation::hear(Connections::iterator from, const native::AgentDied& died, const Turn& turn) {
    if (auto* entry = find(from->second)) {
        entry->job.on_agent_died(from->second.hello->node.incarnation, died, turn);
        update(*entry, turn);
    }
    close(from, "heard", turn);
}

/// A message that an agent sends once it is known: it counts only on that agent's newest connection.
template <class Message>
void Server::Implementation::hear(Connections::iterator from, const Message& message, const Turn& turn) {
    constexpr bool is_final =
        std::is_same_v<Message, native::Leave> || std::is_same_v<Message, native::EndAcknowledged>;
    auto* entry = find(from->second);
    const auto from_agent = from->second.hello->node.incarnation;
    if (entry != nullptr && entry->job.knows(from_agent)) {
        if (!entry->job.take_connection(arrival(from), turn)) return close(from, "refused", turn);
        from->second.may_act_for_agent = true;
        if constexpr (requires { entry->job.on_report(from_agent, message, turn); })
            entry->job.on_report(from_agent, message, turn);
        else
            refuse(from, RefusalReason::malformed, "only a daemon may send this message", turn);
        update(*entry, turn);
    }
    if (is_final) close(from, "its agent has finished", turn);
}

// ---- jobs and connections ----

Server::Implementation::Entry* Server::Implementation::find(const Connection& connection) {
    if (!connection.hello) return nullptr;
    const auto found = jobs_.find(connection.hello->job);
    return found == jobs_.end() ? nullptr : &found->second;
}

Server::Implementation::Entry* Server::Implementation::find_or_create(Connections::iterator from,
                                                                      const native::JobTerms& terms, const Turn& turn) {
    if (auto* known = find(from->second)) return known;
    if (jobs_.size() >= config_.jobs_max && !make_room(turn)) {
        refuse(from, RefusalReason::limit, cat("this daemon serves ", jobs_.size(), " jobs, its maximum"), turn);
        return nullptr;
    }
    const auto& id = from->second.hello->job;
    return &jobs_.try_emplace(id, Entry{Job(id, config_, terms, start_)}).first->second;
}

/// What the job has changed is kept; it is filed under its new deadline, or dropped.
void Server::Implementation::update(Entry& entry, const Turn& turn) {
    entry.job.take_events(turn);
    entry.job.keep_records(turn);
    auto released = entry.job.take_released();
    const auto id = entry.job.id();
    const auto next_round = entry.job.next_round();
    schedule(entry, turn.now);
    if (!released.empty()) judge_released(id, next_round, std::move(released), turn);
}

/// The job goes on, and refuses them where they do not belong to it; or it is forgotten, and the first one begins it
/// anew.
void Server::Implementation::judge_released(const std::string& id, Round next_round, std::vector<HeldJoin> released,
                                            const Turn& turn) {
    for (const auto& [arrived, join, anew, claims, resumes] : released) {
        const auto from = connections_.find(arrived.connection);
        if (from == connections_.end() || from->second.closing) continue;
        if (resumes) {
            close(from, "its terms were in doubt; it has to say again which round it is in", turn);
            continue;
        }
        if (!jobs_.contains(id))
            turn.tell(EventKind::job_note, cat("job '", id, "': the agents of its earlier run are gone; ",
                                               label(arrived.node), " starts it again"));
        auto& entry = *find_or_create(from, join.terms, turn);
        entry.job.number_rounds_from(next_round);
        from->second.may_act_for_agent = entry.job.on_join(arrived, join, turn);
        if (!from->second.may_act_for_agent) close(from, "refused", turn);
        update(entry, turn);
    }
}

/// A daemon that found no state waits for agents whose jobs it cannot know; the next one need not, once they had time.
void Server::Implementation::note_complete(const Turn& turn) {
    if (complete_ || turn.now < start_.at + complete_after) return;
    complete_ = true;
    turn.step.records.push_back(complete_record());
}

/// True when a job has given way.
bool Server::Implementation::make_room(const Turn& turn) {
    const auto* id = yielding_.first();
    if (id == nullptr) return false;
    auto& entry = jobs_.at(*id);
    entry.job.give_way(cat("this daemon serves ", jobs_.size(), " jobs, its maximum"), turn);
    update(entry, turn);
    return true;
}

/// Empty: the job needs no store of this port, or may use it. One that comes back goes before one without a round,
/// whose agents are told so when they join again.
std::string Server::Implementation::take_store(const std::string& id, const native::Join& join, bool is_back,
                                               const Turn& turn) {
    const auto* user = join.terms.fixed_world ? store_user(id, is_back, config_, jobs()) : nullptr;
    if (user == nullptr) return {};
    const bool has_round = user->round().number != no_round;
    // One node's word that nobody has confirmed stops no other job.
    if (is_back && has_round && !user->round().taught.agreed) return {};
    if (!is_back || has_round || user->hold() == JobHold::firm) return store_in_use(id);
    auto& entry = jobs_.at(user->id());
    entry.job.give_way("a job that has been in a round uses the store for static jobs", turn);
    update(entry, turn);
    return {};
}

void Server::Implementation::schedule(Entry& entry, Instant now) {
    yielding_.rank(entry.job.id(), entry.job.forgotten() ? JobHold::firm : entry.job.hold());
    const auto due = entry.job.deadline();
    if (due != entry.due || entry.job.forgotten()) {
        agenda_.erase({entry.due, entry.job.id()});
        entry.due = due;
        if (due != no_deadline && !entry.job.forgotten()) agenda_.emplace(due, entry.job.id());
    }
    if (!entry.job.forgotten()) return;
    past_.add(summary_of(entry.job, now), now);
    jobs_.erase(std::string(entry.job.id()));
}

void Server::Implementation::refuse(Connections::iterator from, RefusalReason reason, std::string why,
                                    const Turn& turn) {
    // Its user may not be the one who can raise the limit. Each node of each job asks, and strangers name any job.
    const auto& connection = from->second;
    if (reason == RefusalReason::limit && turn.now < refusal_is_old_at_) {
        ++refusals_untold_;
    } else if (reason == RefusalReason::limit) {
        refusal_is_old_at_ = turn.now + 1min;
        const auto untold = std::exchange(refusals_untold_, 0);
        turn.tell(EventKind::node_refused,
                  cat("refused from ", connection.accepted.peer, ", job '", connection.hello->job, "': ", why,
                      untold == 0 ? "" : cat("; ", untold, " more were refused for a limit since the last such line")));
    }
    turn.send(from->first, Refused{reason, why});
    close(from, std::move(why), turn);
}

Arrival Server::Implementation::arrival(Connections::iterator from) {
    const auto& hello = *from->second.hello;
    return {from->first, from->second.accepted.peer, hello.node, hello.connection, hello.versions, from->second.proven};
}

std::vector<const Job*> Server::Implementation::jobs() const {
    std::vector<const Job*> jobs;
    for (const auto& [id, entry] : jobs_) jobs.push_back(&entry.job);
    return jobs;
}

Server::Server(ServerConfig config, Instant started) : Server(std::move(config), started, KeptState{}) {}
Server::Server(ServerConfig config, Instant started, KeptState kept)
    : implementation_(std::make_unique<Implementation>(std::move(config), started, std::move(kept))) {}
Server::~Server() = default;
ServerStep Server::step(const ServerEvent& event, Instant now) {
    return implementation_->step(event, now);
}
Instant Server::deadline() const {
    return implementation_->deadline();
}
std::vector<const Job*> Server::jobs() const {
    return implementation_->jobs();
}
const PastJobs& Server::past() const {
    return implementation_->past();
}
const ServerConfig& Server::config() const {
    return implementation_->config();
}
const TimeHistogram& Server::heartbeat_lateness() const {
    return implementation_->heartbeat_lateness();
}

}  // namespace muster::rendezvous
