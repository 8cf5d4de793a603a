#include "tests/simulation/processes/daemon_process.h"

#include <algorithm>

#include "rendezvous/rounds/terms.h"
#include "tests/simulation/job_secret.h"
#include "tests/simulation/processes/twin.h"

namespace muster::simulation {

/// One of the plants makes time fly for this daemon alone.
Instant DaemonProcess::now() const {
    const Moment moment = world_.events.now();
    const bool hasty = world_.plant == Plant::seals_too_early;
    return clock_.local(hasty ? started_ + (moment - started_) * 4 : moment);
}

void DaemonProcess::start(rendezvous::ServerConfig config, Disk* disk) {
    started_ = world_.events.now();
    running_ = true;
    disk_ = disk;
    ++life_;
    gate_ = {};
    decided_after_.clear();
    world_.chronicle.tell("daemon starts");
    world_.invariants.daemon_started(disk != nullptr);
    rendezvous::KeptState kept;
    if (disk_ != nullptr) {
        config.keep_records = true;
        auto state = rendezvous::decode_state(disk_->records(world_.plant));
        if (state)
            kept = *std::move(state);
        else
            world_.chronicle.violated("state", state.error().context);
        if (!kept.jobs.empty()) world_.chronicle.count(Happening::daemon_went_on_from_state);
    }
    server_ = std::make_unique<rendezvous::Server>(std::move(config), now(), std::move(kept));
    paused_ = false;
    world_.network.listen(address_, this, tls_);
    arm();
}

// ---- one of several (as dialects/agent_dialect.cpp and etcd/etcd_state.cpp have it) ----

void DaemonProcess::stand_for_election(rendezvous::ServerConfig config, SharedEtcd& etcd) {
    started_ = world_.events.now();
    running_ = true;
    paused_ = false;
    ++life_;
    leader_.clear();
    config_ = std::move(config);
    config_.keep_records = true;
    config_.to_wall_clock = world_.events.now() - now().time_since_epoch();
    world_.chronicle.tell("daemon ", address_.host, " starts");
    world_.network.listen(address_, this, tls_);
    seat_ = std::make_unique<EtcdSeat>(
        world_, random_.fork(), clock_, etcd, address_,
        EtcdSeat::Hooks{.post =
                            [this, life = life_](std::function<void()> work) {
                                if (life == life_) post(std::move(work));
                            },
                        .leads = [this](rendezvous::KeptState kept) { lead(std::move(kept)); },
                        .stands_by = [this](std::string leader) { stand_by(std::move(leader)); },
                        .persisted =
                            [this](std::uint64_t sequence) {
                                if (server_) persisted(sequence);
                            }});
    post([this] { seat_->begin(); });
}

void DaemonProcess::lead(rendezvous::KeptState kept) {
    world_.chronicle.tell("daemon ", address_.host, " leads");
    if (world_.invariants.reign_count() > 0) world_.chronicle.count(Happening::daemon_took_over);
    reign_ = world_.invariants.reign_began();
    // What has been over for long is forgotten without a word.
    std::set<std::string> known;
    const auto lingers_until = [&](const rendezvous::KeptJob& job) {
        return Instant(std::chrono::nanoseconds(job.facts.ended_at_ns) - config_.to_wall_clock) + config_.end_linger;
    };
    for (const auto& job : kept.jobs)
        if (!job.facts.ending || (!job.members.empty() && lingers_until(job) > now())) known.insert(job.facts.id);
    world_.invariants.jobs_kept(known);
    server_ = std::make_unique<rendezvous::Server>(config_, now(), std::move(kept));
    gate_ = {};
    decided_after_.clear();
    known_.clear();
    leader_.clear();
    arm();
}

void DaemonProcess::stand_by(std::string leader) {
    leader_ = std::move(leader);
    if (!server_) return;
    world_.chronicle.tell("daemon ", address_.host, " leads no more");
    world_.invariants.reign_ended(reign_);
    server_.reset();
    gate_ = {};
    decided_after_.clear();
    armed_deadline_ = no_deadline;
    alarm_.set(never);
    for (const StreamId stream : std::exchange(known_, {})) turn_away(stream);
}

void DaemonProcess::turn_away(StreamId stream) {
    std::string frame;
    native::append_frame(frame, native::NotLeader{leader_});
    callers_.erase(stream);
    world_.invariants.connection_over(stream);
    world_.network.send(stream, frame);
    world_.network.close(stream);
}

void DaemonProcess::kill() {
    if (!running_) return;
    world_.chronicle.count(Happening::daemon_killed);
    world_.chronicle.tell("daemon is killed");
    if (!seat_)
        world_.invariants.daemon_ended();
    else if (server_)
        world_.invariants.reign_ended(reign_);
    running_ = false;
    server_.reset();
    seat_.reset();
    known_.clear();
    if (disk_ != nullptr) disk_->writer_killed(world_.plant);
    posted_.clear();
    callers_.clear();
    armed_deadline_ = no_deadline;
    alarm_.set(never);
    world_.network.process_gone(this);
}

void DaemonProcess::drain(Incarnation agent, std::string node) {
    post([this, agent, node = std::move(node)] {
        const auto newest = newest_.find(agent);
        if (!server_ || newest == newest_.end() || !callers_.contains(newest->second)) return;
        give(rendezvous::Received{newest->second,
                                  native::Command{1, native::CommandVerb::drain_node, node, "maintenance"}});
    });
}

void DaemonProcess::pause() {
    if (!running_ || paused_) return;
    world_.chronicle.count(Happening::daemon_paused);
    world_.chronicle.tell("daemon is paused");
    if (server_) world_.invariants.daemon_paused();
    paused_ = true;
}

/// The loop serves sockets before it looks at the clock (net/event_loop.h).
void DaemonProcess::go_on() {
    if (!paused_) return;
    world_.chronicle.tell("daemon continues");
    if (server_) world_.invariants.daemon_continued();
    paused_ = false;
    run_posted();
    tick();
}

void DaemonProcess::post(std::function<void()> work) {
    if (!running_) return;
    posted_.push_back(std::move(work));
    if (!in_loop_) run_posted();
}

void DaemonProcess::run_posted() {
    in_loop_ = true;
    while (running_ && !paused_ && !posted_.empty()) {
        const auto work = std::move(posted_.front());
        posted_.pop_front();
        work();
    }
    in_loop_ = false;
    arm();
}

void DaemonProcess::tick() {
    armed_deadline_ = no_deadline;
    if (!server_ || paused_) return;
    post([this] {
        if (server_) give(rendezvous::Elapsed{});
    });
}

void DaemonProcess::arm() {
    if (!server_ || paused_) return;
    const Instant deadline = server_->deadline();
    if (deadline == armed_deadline_) return;
    armed_deadline_ = deadline;
    if (deadline == no_deadline) return alarm_.set(never);
    if (world_.plant == Plant::runs_in_circles) return alarm_.set(world_.events.now() + 1us);
    const bool hasty = world_.plant == Plant::seals_too_early;
    const Moment due = hasty ? world_.events.now() + (deadline - now()) / 4 + 1us : clock_.moment(deadline);
    alarm_.set(due + random_.between(Duration{0}, Duration{1ms}));
}

void DaemonProcess::give(const rendezvous::ServerEvent& event) {
    rendezvous::ServerStep step = server_->step(event, now());
    for (const auto& why : step.why) {
        const auto& line = why.text;
        world_.chronicle.tell("daemon: ", line);
        // Its launcher is not told so: the job goes on, as another one.
        if (line.ends_with("starts it again")) world_.invariants.job_forgotten(line.substr(5, line.find('\'', 5) - 5));
    }
    const bool has_records = !step.records.empty() && world_.plant != Plant::tells_before_keeping;
    const auto entered = gate_.enter(std::move(step.actions), has_records);
    carry_out(entered.released);
    if (entered.sequence > 0) decided_after_[entered.sequence] = world_.invariants.heard_count();
    if (!step.records.empty()) keep(entered.sequence, std::move(step.records));
}

/// As dialects/agent_dialect.cpp has it, with a disk that takes its time.
void DaemonProcess::keep(std::uint64_t sequence, std::vector<rendezvous::Record> records) {
    if (seat_) return seat_->write(sequence, std::move(records));
    disk_->write(sequence, std::move(records), [this, life = life_](std::uint64_t done) {
        if (life != life_ || done == 0) return;
        post([this, done] { persisted(done); });
    });
}

/// One step after the other, because each was decided when other things had been heard.
void DaemonProcess::persisted(std::uint64_t sequence) {
    while (!decided_after_.empty() && decided_after_.begin()->first <= sequence) {
        const auto step = decided_after_.extract(decided_after_.begin());
        held_since_ = step.mapped();
        carry_out(gate_.persisted(step.key()));
    }
    held_since_.reset();
}

void DaemonProcess::carry_out(const rendezvous::ActionGate::Actions& actions) {
    for (const auto& action : actions) {
        if (server_) carry_out(action);
    }
    world_.invariants.daemon_step_over();
}

void DaemonProcess::carry_out(const rendezvous::ServerAction& action) {
    if (const auto* said = std::get_if<rendezvous::SendTo>(&action)) send(*said);
    if (const auto* close = std::get_if<rendezvous::CloseConnection>(&action)) {
        if (world_.plant == Plant::keeps_old_connection) return;
        callers_.erase(close->connection);
        world_.invariants.connection_over(close->connection);
        world_.network.close(close->connection);
    }
    if (const auto* forgotten = std::get_if<rendezvous::JobForgotten>(&action)) {
        world_.invariants.job_forgotten(forgotten->job);
    }
}

void DaemonProcess::send(rendezvous::SendTo said) {
    if (world_.plant == Plant::keeps_old_connection) {
        for (const StreamId newer : std::vector<StreamId>(said.connections)) {
            const auto older = replaced_.find(newer);
            if (older != replaced_.end()) said.connections.push_back(older->second);
        }
    }
    for (std::size_t i = 0; i < said.connections.size(); ++i) {
        rendezvous::SendTo one{{said.connections[i]}, said.message};
        if (boasters_.contains(said.connections[i]) && !std::holds_alternative<native::Challenge>(one.message))
            believes_ |=
                world_.plant == (std::holds_alternative<native::Refused>(one.message) ? Plant::believes_boasters
                                                                                      : Plant::believes_too_much);
        corrupt(one.message);
        if (auto* asked = std::get_if<native::Challenge>(&one.message); asked && asked->proof.empty())
            nonces_[said.connections[i]] = asked->nonce;
        else if (asked && world_.plant == Plant::takes_any_proof && guessed_.contains(said.connections[i]))
            asked->proof = native::proof_of(hash_with(other_secret), native::Prover::daemon,
                                            hellos_[said.connections[i]], nonces_[said.connections[i]]);
        auto* const over = std::get_if<native::JobEnded>(&one.message);
        if (over != nullptr && i > 0 && world_.plant == Plant::ends_in_two_ways) {
            const bool failed = over->outcome == native::JobOutcome::failed;
            over->outcome = failed ? native::JobOutcome::succeeded : native::JobOutcome::failed;
        }
        if (seat_ && !seat_->may_speak()) {
            turn_away(said.connections[i]);
            continue;
        }
        if (seat_) world_.invariants.reign_speaks(reign_);
        world_.invariants.on_daemon_message(one, held_since_);
        std::string frame;
        native::append_frame(frame, one.message);
        if (world_.plant == Plant::garbles && std::holds_alternative<native::Gathering>(one.message)) {
            for (char& byte : frame) byte = '\xff';
        }
        const int times = world_.plant == Plant::floods ? 2000 : 1;
        for (int repeat = 0; repeat < times; ++repeat) world_.network.send(said.connections[i], frame);
        world_.invariants.check_unsent(world_.network.unsent_bytes(said.connections[i]));
    }
}

/// What the plants make of a message on its way out.
void DaemonProcess::corrupt(native::Message& message) const {
    if (auto* news = std::get_if<native::Gathering>(&message); news && world_.plant == Plant::hides_parked)
        news->waiting_for = news->waiting_for.substr(0, news->waiting_for.find(';'));
    auto* assigned = std::get_if<native::Assigned>(&message);
    if (assigned == nullptr) return;
    switch (world_.plant) {
        case Plant::reuses_round_number: assigned->round -= assigned->round % 2; break;
        case Plant::duplicate_rank:
            if (assigned->group_rank == 1) assigned->rank_base = 0;
            break;
        case Plant::charges_twice: assigned->restart_count *= 2; break;
        case Plant::uneven_restart_count:
            if (assigned->group_rank == 1) ++assigned->restart_count;
            break;
        case Plant::charges_lost_node: assigned->restart_count = static_cast<std::uint32_t>(assigned->round); break;
        case Plant::charges_parked:
            if (world_.invariants.any_parked()) ++assigned->restart_count;
            break;
        case Plant::believes_boasters:
        case Plant::believes_too_much:
            if (believes_) assigned->round += rendezvous::round_max;
            break;
        case Plant::repeats_secret:
            if (!assigned->secret.empty()) assigned->secret = "of every round";
            break;
        case Plant::splits_secret:
            if (!assigned->secret.empty()) assigned->secret += cat(assigned->group_rank);
            break;
        default: break;
    }
}

// ---- the network ----

void DaemonProcess::stream_accepted(StreamId stream, std::uint16_t) {
    // Asked now: of a connection that is over when its bytes are read, the network knows nothing any more.
    post([this, stream, address = cat("10.0.0.", world_.network.peer_host(stream)),
          job = std::string(rendezvous::job_of_identity(world_.network.identity(stream)))] {
        callers_.emplace(stream, Caller{.address = address, .proven_job = job});
        if (server_) introduce(stream);
    });
}

void DaemonProcess::introduce(StreamId stream) {
    const Caller& caller = callers_.at(stream);
    known_.insert(stream);
    const bool is_local = tls_ == nullptr || world_.network.leaves_out_tls;  // proofs in clear text are for loopback
    give(rendezvous::ConnectionAccepted{
        .connection = stream, .peer = caller.address, .proven_job = caller.proven_job, .is_local = is_local});
}

void DaemonProcess::stream_received(StreamId stream, std::string bytes) {
    post([this, stream, bytes = std::move(bytes)] { this->bytes(stream, bytes); });
}

void DaemonProcess::misread_budgets(native::JobTerms& terms) const {
    if (world_.plant == Plant::widens_window && terms.restarts_window_ms > 0) terms.restarts_window_ms = 600'000;
    if (world_.plant == Plant::narrows_window && terms.restarts_window_ms > 0) terms.restarts_window_ms = 1;
    if (world_.plant == Plant::judges_nodes_hastily && terms.node_failures_max > 0) terms.node_failures_max = 1;
}

void DaemonProcess::mend_proof(StreamId stream, native::Message& message) {
    if (const auto* hello = std::get_if<native::Hello>(&message)) hellos_[stream] = *hello;
    if (auto* proof = std::get_if<native::Proof>(&message)) {
        auto right = native::proof_of(hash_with(job_secret), native::Prover::agent, hellos_[stream], nonces_[stream]);
        if (proof->proof != right) guessed_.insert(stream);
        proof->proof = std::move(right);
    }
}

bool DaemonProcess::forgets(StreamId stream, const native::Message& message) const {
    const auto* join = std::get_if<native::Join>(&message);
    if (world_.plant != Plant::forgets_recovery || join == nullptr || !join->unhealthy.empty()) return false;
    const auto* agent = world_.invariants.find(caller(stream));
    return agent != nullptr && !agent->parked_for.empty();
}

Incarnation DaemonProcess::caller(StreamId stream) const {
    const auto found = std::ranges::find(newest_, stream, [](const auto& entry) { return entry.second; });
    return found != newest_.end() ? found->first : Incarnation{};
}

void DaemonProcess::misread_finding(StreamId stream, native::Join& join) {
    const auto* agent = world_.invariants.find(caller(stream));
    if (world_.plant == Plant::never_resets_breaker && agent != nullptr && !join.unhealthy.empty()) {
        auto& reporters = reporters_[{agent->job, join.unhealthy.substr(0, join.unhealthy.find(':'))}];
        reporters.insert(caller(stream));
        if (reporters.size() > 1) join.unhealthy.clear();
    }
    if (world_.plant == Plant::ignores_findings) join.unhealthy.clear();
    // In letters, because numbers do not make two findings different.
    if (world_.plant == Plant::never_trips && !join.unhealthy.empty())
        join.unhealthy += cat(" x", std::string(static_cast<std::size_t>(world_.events.now() / 1ms % 97), 'x'));
    if (world_.plant != Plant::parks_for_others) return;
    if (join.unhealthy.empty())
        join.unhealthy = last_finding_;
    else
        last_finding_ = join.unhealthy;
}

void DaemonProcess::bytes(StreamId stream, const std::string& bytes) {
    auto found = callers_.find(stream);
    if (found == callers_.end()) return;
    found->second.reader.append(bytes);
    // A message may make the server close this connection.
    while (running_ && (found = callers_.find(stream)) != callers_.end()) {
        auto next = found->second.reader.next();
        if (next.has_error()) {
            world_.chronicle.violated("codec", describe(next.error()));
            return drop(stream, describe(next.error()));
        }
        if (!next.value()) return;
        if (!server_) return turn_away(stream);
        if (!known_.contains(stream)) introduce(stream);
        native::Message message = std::move(*next.value());
        if (auto* join = std::get_if<native::Join>(&message); join && world_.plant == Plant::seals_beyond_max) {
            ++join->terms.nodes_max;
        }
        if (world_.plant == Plant::takes_any_proof) mend_proof(stream, message);
        if (auto* join = std::get_if<native::Join>(&message)) misread_budgets(join->terms);
        if (auto* resume = std::get_if<native::Resume>(&message)) misread_budgets(resume->as_joined.terms);
        if (const auto* hello = std::get_if<native::Hello>(&message)) {
            if (Twin::is_boaster(hello->node.incarnation)) boasters_.insert(stream);
            const auto older = newest_.find(hello->node.incarnation);
            if (older != newest_.end()) replaced_[stream] = older->second;
            newest_[hello->node.incarnation] = stream;
        }
        world_.invariants.daemon_heard(stream, message);
        if (forgets(stream, message)) continue;
        if (auto* join = std::get_if<native::Join>(&message)) misread_finding(stream, *join);
        if (world_.chronicle.tracing() && !std::holds_alternative<native::Ping>(message)) {
            world_.chronicle.tell("daemon gets ", native::name(message), " on ", stream);
        }
        give(rendezvous::Received{stream, std::move(message)});
    }
}

void DaemonProcess::drop(StreamId stream, std::string why) {
    callers_.erase(stream);
    world_.network.close(stream);
    world_.invariants.connection_over(stream);
    if (server_ && known_.erase(stream) > 0) give(rendezvous::ConnectionEnded{stream, std::move(why)});
}

void DaemonProcess::stream_closed(StreamId stream, std::string why) {
    post([this, stream, why = std::move(why)] {
        if (callers_.erase(stream) == 0) return;
        world_.invariants.connection_over(stream);
        if (server_ && known_.erase(stream) > 0) give(rendezvous::ConnectionEnded{stream, why});
    });
}

}  // namespace muster::simulation
