#include "agent/driver/agent.h"

#include <chrono>

#include "agent/driver/agent_driver.h"
#include "agent/driver/worker_metrics.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/client/core/clock_offset.h"
#include "rendezvous/events/files/said_event.h"

namespace muster::agent {

namespace asio = boost::asio;

static constexpr Duration look_after = 300ms;
/// The collector is asked every 15 s as a rule.
static constexpr Duration metrics_interval = 5s;

Agent::Driver::Driver(Agent& agent, asio::io_context& loop, AgentConfig config, rendezvous::RendezvousLink& link,
                      ProcessHost& host, RoundStoreHost& stores)
    : agent_(agent),
      config_(std::move(config)),
      link_(link),
      host_(host),
      stores_(stores),
      logs_({.base = config_.logs.base,
             .temporary = temporary_directory(config_.workers.environment),
             .job = config_.workers.job,
             .none = config_.logs.none}),
      commands_(loop, config_, logs_),
      persister_(AgentPersister::make(loop, config_.persist_limit)),
      hangs_(loop, config_.hang, config_.workers.environment),
      timers_(loop),
      gpus_(loop, config_.workers.environment, {}),
      preflight_(loop),
      health_(loop, config_.health),
      faults_(loop, config_.allow_faults ? FaultInjector::Faults::allowed : FaultInjector::Faults::refused),
      supervisor_(config_.supervisor),
      reach_(loop),
      loop_(loop),
      signals_(loop),
      deadline_(loop),
      feeding_(loop),
      measuring_(loop),
      looking_(loop) {}

void Agent::Driver::start() {
    listen();
    auto handled = config_.handled_signals;
    if (config_.workers.preemption_signal != 0) handled.push_back(config_.workers.preemption_signal);
    for (const int signal : handled) {
        boost::system::error_code failure;
        signals_.add(signal, failure);
        if (failure) log(LogLevel::warning, "signal ", signal, " cannot be handled: ", failure.message());
    }
    wait_for_signal();
    feed();
    take_commands();
    faults_.cut_off = [this](Duration length) { link_.cut_off(length); };
    hangs_.ask = [this](std::uint32_t local_rank) { return commands_.told(local_rank); };
    hangs_.on_notice = [this](std::string line) {
        if (agent_.on_progress) agent_.on_progress(std::move(line));
    };
    commands_.on_event = hangs_.on_event = [this](const Event& event) { tell(event); };
    commands_.on_keeping = [this](std::uint32_t local_rank, const local::Message& message) {
        const auto* can = std::get_if<local::CanKeep>(&message);
        happen(WorkerKeeps{local_rank, can == nullptr ? KeepWord::held : can->can ? KeepWord::can : KeepWord::cannot});
    };
    hangs_.on_seen = [this](native::WorkersSeen seen) {
        seen.round = commands_.last_round();
        seen.checkpoints = commands_.tiers();
        seen.gpus = gpus_.busy();
        link_.submit(std::move(seen));
    };
    gpus_.on_notice = hangs_.on_notice;
    if (auto refused = set_up())
        happen(*std::move(refused));
    else if (config_.warm_before_join)
        host_.expect(commands_.expected(), guarded([this] {
                         if (supervisor_.phase() != Phase::done) happen(Begin{});
                     }));
    else
        happen(Begin{});
    if (auto folder = logs_.own_base(); !folder.empty()) host_.remove_after_death(std::move(folder));
    look_at_node();
}

/// What is to be there before the node joins. Empty: it is.
std::optional<SetUpRefused> Agent::Driver::set_up() {
    auto& environment = config_.workers.environment;
    const auto timers = timers_.open(environment, temporary_directory(environment));
    if (auto made = logs_.run_directory(); made.has_error()) return SetUpRefused{made.error().context};
    if (timers.has_error()) return SetUpRefused{timers.error().context};
    if (config_.metrics_file.empty()) return std::nullopt;
    auto opened = MetricsFile::open(config_.metrics_file, metrics(MetricsFormat::text));
    if (!opened) return SetUpRefused{cat("--metrics-file: ", opened.error().context)};
    metrics_file_ = *std::move(opened);
    write_metrics();
    return std::nullopt;
}

void Agent::Driver::write_metrics() {
    call_after(measuring_, metrics_interval, guarded([this] {
                   if (!metrics_file_) return;
                   metrics_file_->write(metrics(MetricsFormat::text));
                   write_metrics();
               }));
}

std::string Agent::Driver::metrics(MetricsFormat format) const {
    std::vector<WorkerNumbers> workers;
    const bool in_round = commands_.last_round() != no_round;
    for (std::uint32_t local_rank = 0; in_round && local_rank < config_.supervisor.join.slots; ++local_rank)
        workers.push_back({.local_rank = local_rank,
                           .rank = commands_.rank_of(local_rank),
                           .runs = worker_pids_.contains(local_rank),
                           .steps = commands_.steps_of(local_rank)});
    return worker_metrics(format, config_.shown_job, commands_.last_round(), workers, gpus_.busy());
}

/// While the node joins or the workers start: nothing waits for it, and the job's end drops what is not known by then.
/// A job that is over at once does not share its processors with looks that nobody reads.
void Agent::Driver::look_at_node() {
    if (!config_.preflight || supervisor_.phase() == Phase::done) return;
    call_after(looking_, look_after, guarded([this] {
                   if (supervisor_.phase() == Phase::done) return;
                   const auto& plan = *config_.preflight;
                   preflight_.start(plan, [this, &plan](const DoctorFacts& facts) {
                       const auto findings = examine(facts, plan.limits, plan.skip);
                       for (const auto& event : preflight_events(findings, config_.supervisor.host)) tell(event);
                   });
               }));
}

void Agent::Driver::listen() {
    link_.on_message = guarded([this](native::Message message) {
        if (auto* told = std::get_if<native::CommandAnswer>(&message))
            answer(std::move(*told));
        else if (const auto* fault = std::get_if<native::FaultOrdered>(&message))
            link_.submit(faults_.inject(*fault));
        else if (const auto* seen = std::get_if<native::JobSeen>(&message))
            hangs_.job_seen(*seen);
        else
            on_daemon_message(std::move(message));
    });
    link_.on_fenced = forward<ClientFenced>();
    link_.on_lost = forward<ClientLost>();
    link_.on_progress = guarded([this](std::string line) {
        if (agent_.on_progress) agent_.on_progress(std::move(line));
    });
    persister_->on_event = guarded([this](const Event& event) { tell(event); });
    host_.on_event = guarded([this](ProcessEvent event) { host_said(std::move(event)); });
}

/// Nobody's job depends on it.
void Agent::Driver::take_commands() {
    auto opened = CommandSocket::open(loop_, config_.shown_job,
                                      guarded([this](native::Command command) { link_.submit(std::move(command)); }));
    if (opened.has_error())
        log(LogLevel::warning, "this agent accepts no commands: ", muster::describe(opened.error()));
    else
        command_socket_ = std::move(opened.value());
}

void Agent::Driver::answer(native::CommandAnswer answer) {
    log(LogLevel::info, "a command was ", answer.done ? "executed: " : "not executed: ", answer.text);
    if (command_socket_) command_socket_->answer(std::move(answer));
}

void Agent::Driver::wait_for_signal() {
    signals_.async_wait(guarded([this](boost::system::error_code failure, int signal) {
        if (failure) return;
        wait_for_signal();
        if (agent_.on_signal) agent_.on_signal(signal);
        if (finishing_) return persister_->hurry();
        if (signal == config_.workers.preemption_signal)
            happen(PreemptionAnnounced{signal});
        else
            happen(StopRequested{signal});
    }));
}

void Agent::Driver::feed() {
    if (link_.may_feed()) host_.feed();
    if (!worker_pids_.empty()) evidence_.look(now());
    fence_held_workers();
    call_after(feeding_, config_.lease / 10, guarded([this] { feed(); }));
}

/// A held worker has no round by which the client could fence it. It ends with its agent's lease as one of a round
/// does.
void Agent::Driver::fence_held_workers() {
    if (config_.is_alone || !supervisor_.holds_workers()) return;
    const auto silence = now() - link_.heard_until();
    if (silence >= config_.lease * 88 / 100)
        happen(ClientFenced{cat("no answer from the rendezvous for ", muster::describe(silence))});
}

void Agent::Driver::arm_deadline() {
    const Instant at = supervisor_.deadline();
    if (at == no_deadline) {
        deadline_.cancel();
        return;
    }
    deadline_.expires_at(at);
    deadline_.async_wait(guarded([this](boost::system::error_code failure) {
        if (!failure) happen(Elapsed{});
    }));
}

/// An assignment waits until it is known where this node reaches the store; whatever comes after it ends the wait, so
/// that nothing overtakes it.
void Agent::Driver::on_daemon_message(native::Message message) {
    reach_.hurry();
    auto* assignment = std::get_if<native::Assigned>(&message);
    if (assignment != nullptr) store_trouble_.clear();
    if (assignment != nullptr) stores_.serve(*assignment);
    if (assignment != nullptr && assignment->group_world_size > 1) return find_store(std::move(*assignment));
    if (assignment != nullptr) {  // nobody is there to be led to
        config_.workers.interface.clear();
        config_.workers.relayed_store.clear();
    }
    if (std::holds_alternative<native::RoundEnded>(message)) commands_.catch_up();
    happen(DaemonMessage{std::move(message)});
}

void Agent::Driver::find_store(native::Assigned assignment) {
    auto& workers = config_.workers;
    const auto ask = [](const std::function<std::string()>& fact) { return fact ? fact() : std::string(); };
    const StoreReach::Known known{.own_address = ask(config_.network.own_address),
                                  .daemon_address = ask(config_.network.daemon_address),
                                  .is_bound_later = !workers.agent_store};
    const bool fixed = !workers.master_address.empty();
    if (asked_master_.empty()) asked_master_ = workers.master_address;
    auto target = assignment;
    if (fixed) {
        target.store_addresses = {known.daemon_address.empty() ? asked_master_ : known.daemon_address};
        target.store_port = workers.master_port;
    }
    reach_.start(target, known, [this, fixed, assignment = std::move(assignment)](StoreReach::Found found) mutable {
        auto& spec = config_.workers;
        // An address that the user wrote is what the workers get, as from torchrun; a name would be looked up by each.
        const bool is_name = !is_loopback(asked_master_) && !SocketAddress::from_numeric(asked_master_, 0);
        if (!found.address.empty() && fixed && is_name) spec.master_address = found.address;
        if (!found.address.empty() && !fixed) assignment.store_addresses = {found.address};
        if (!fixed) relay_store(assignment);
        spec.interface = found.interface;
        if (!found.trouble.empty() && agent_.on_progress) agent_.on_progress(found.trouble);
        happen(DaemonMessage{std::move(assignment)});
    });
}

/// Sends this node's workers to its relay, if it has one.
void Agent::Driver::relay_store(native::Assigned& assignment) {
    config_.workers.relayed_store.clear();
    if (assignment.group_rank == 0 || assignment.store_addresses.empty()) return;
    const Endpoint store{assignment.store_addresses.front(), assignment.store_port};
    const auto relay = stores_.relay(store);
    if (relay.has_error()) store_trouble_ = cat("the workers cannot reach their store: ", relay.error().context);
    if (relay.has_error() || !relay.value()) return;
    config_.workers.relayed_store = store.host;
    assignment.store_addresses = {relay.value()->host};
    assignment.store_port = relay.value()->port;
}

void Agent::Driver::keep_standbys(const SupervisorEvent& event) {
    // There is no next round that they could serve, or this node must not be trusted to have one.
    if (std::holds_alternative<StopRequested>(event) || std::holds_alternative<ClientFenced>(event)) {
        host_.end_standbys();
        has_ended_standbys_ = true;
    }
    const auto* const heard = std::get_if<DaemonMessage>(&event);
    const auto* const parked = heard != nullptr ? std::get_if<native::Parked>(&heard->message) : nullptr;
    // An excluded node gets no place. A change of position may still be under way when this node stops.
    if (parked != nullptr && parked->why.empty() && !has_ended_standbys_) host_.expect(commands_.expected(), {});
}

void Agent::Driver::tell(const Event& event) {
    say(event);
    if (agent_.on_event) agent_.on_event(event);
}

void Agent::Driver::happen(SupervisorEvent event) {
    pending_.push_back(std::move(event));
    if (stepping_) return;
    stepping_ = true;
    while (!pending_.empty()) {
        const SupervisorEvent next = std::move(pending_.front());
        pending_.pop_front();
        keep_standbys(next);
        const SupervisorStep step = supervisor_.step(next, now());
        for (const auto& news : step.why) tell(news);
        for (const auto& line : step.notices)
            if (agent_.on_progress) agent_.on_progress(line);
        for (const auto& action : step.actions) std::visit([this](const auto& ordered) { carry_out(ordered); }, action);
    }
    stepping_ = false;
    arm_deadline();
}

void Agent::Driver::host_said(ProcessEvent event) {
    WorkerNotes notes;
    if (const auto* started = std::get_if<WorkerStarted>(&event)) {
        worker_pids_[started->local_rank] = started->pid;
        hangs_.worker_started(started->local_rank, started->pid);
        timers_.worker_started(started->local_rank, started->pid);
        faults_.worker_started(started->local_rank, started->pid);
    } else if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
        worker_pids_.erase(ended->local_rank);
        const auto hung = hangs_.worker_ended(ended->local_rank);
        const auto expired = timers_.worker_ended(ended->pid, ended->end);
        if (!succeeded(ended->end)) {
            commands_.catch_up();
            notes = notes_at(ended->at);
            commands_.describe(*ended, notes);
            notes.cause = evidence_.cause_of(*ended, notes.message, config_.supervisor.host,
                                             faults_.killer_of(ended->local_rank));
            if (hung.kind != CauseKind::unknown) notes.cause = hung;
            // The kernel's own word about this pid is older than a signal that came to a process which it had killed.
            if (expired.kind != CauseKind::unknown && notes.cause.kind != CauseKind::out_of_memory)
                notes.cause = expired;
            faults_.worker_ended(ended->local_rank, ended->at, notes.cause);
        }
    } else if (const auto* stuck = std::get_if<TreeStuck>(&event)) {
        notes.cause.text = EndEvidence::describe_unkillable(stuck->pids);
    } else if (const auto* lost = std::get_if<GuardianLost>(&event)) {
        notes = notes_at(lost->at);
    }
    happen(HostEvent{std::move(event), std::move(notes)});
}

WorkerNotes Agent::Driver::notes_at(Instant at) const {
    WorkerNotes notes;
    notes.at_ns = rendezvous::clock_ns(at);
    using namespace std::chrono;
    notes.wall_time_s = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    return notes;
}

Agent::Agent(asio::io_context& loop, AgentConfig config, rendezvous::RendezvousLink& link, ProcessHost& host,
             RoundStoreHost& stores)
    : driver_(std::make_shared<Driver>(*this, loop, std::move(config), link, host, stores)) {}

Agent::~Agent() = default;

void Agent::start() {
    driver_->start();
}

std::string Agent::log_folder() const {
    return driver_->log_folder();
}

std::vector<std::string> Agent::kept_logs() const {
    return driver_->kept_logs();
}

void Agent::tell_stacks(const std::optional<std::set<std::uint32_t>>& ranks, std::function<void(std::string)> use) {
    driver_->tell_stacks(ranks, std::move(use));
}

std::string Agent::metrics(MetricsFormat format) const {
    return driver_->metrics(format);
}

}  // namespace muster::agent
