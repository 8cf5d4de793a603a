#include "agent/agent.h"

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <map>

#include "agent/agent_persister.h"
#include "agent/command_socket.h"
#include "agent/end_evidence.h"
#include "agent/fault_injector.h"
#include "agent/gpu_check.h"
#include "agent/hang_watcher.h"
#include "agent/log_directory.h"
#include "agent/signal_handlers.h"
#include "agent/store_reach.h"
#include "agent/timer_fifo.h"
#include "agent/worker_commands.h"
#include "rendezvous/base/journal.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/socket_address.h"
#include "rendezvous/base/text.h"
#include "rendezvous/client/clock_offset.h"
#include "rendezvous/wire/native/report.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

Instant now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

/// Shared with the handlers under way, which hold it weakly: after ~Agent none of them does anything.
class Agent::Driver : public std::enable_shared_from_this<Driver> {
  public:
    Driver(Agent& agent, asio::io_context& loop, AgentConfig config, RendezvousLink& link, ProcessHost& host,
           RoundStoreHost& stores)
        : agent_(agent),
          config_(std::move(config)),
          link_(link),
          host_(host),
          stores_(stores),
          logs_({.base = config_.logs.base,
                 .temporary = temporary_directory(config_.workers.environment),
                 .job = config_.logs.job,
                 .none = config_.logs.none}),
          commands_(loop, config_, logs_),
          persister_(loop, config_.persist_limit),
          hangs_(loop, config_.hang, config_.workers.environment),
          timers_(loop),
          gpus_(loop, config_.workers.environment),
          faults_(loop, config_.allow_faults ? FaultInjector::Faults::allowed : FaultInjector::Faults::refused),
          supervisor_(config_.supervisor),
          reach_(loop),
          loop_(loop),
          signals_(loop),
          deadline_(loop),
          feeding_(loop) {}

    void start();

  private:
    template <class Event>
    auto forward() {
        return [weak = weak_from_this()](auto what) {
            auto self = weak.lock();
            if (!self) return;
            self->reach_.hurry();
            self->happen(Event{std::move(what)});
        };
    }
    void listen();
    void take_commands();
    void answer(native::CommandAnswer answer);
    void wait_for_signal();
    void feed();
    void arm_deadline();

    void daemon_said(native::Message message);
    void find_store(native::Assigned assignment);
    void happen(SupervisorEvent event);
    void host_said(ProcessEvent event);
    WorkerNotes notes_at(Instant at) const;
    void settle_flight_records(bool job_succeeded);

    // One for each action.
    void carry_out(const OpenStore& action);
    void carry_out(const CloseStore& action);
    void carry_out(const SendJoin& action);
    void carry_out(const StartWorkers& action);
    void carry_out(const TellWorkers& action);
    void carry_out(const NotifyWorkers& action);
    void carry_out(const SignalWorkers& action);
    void carry_out(const SignalGroup& action);
    void carry_out(const PreemptWorkers& action);
    void carry_out(const SendCommand& action);
    void carry_out(const KillTree& action);
    void carry_out(const KillGuardian& action);
    void carry_out(const ReportFailed& action);
    void carry_out(const ReportSucceeded& action);
    void carry_out(const ReportRound& action);
    void carry_out(const SendLeave& action);
    void carry_out(const AcknowledgeEnd& action);
    void carry_out(const Finish& action);

    Agent& agent_;
    AgentConfig config_;
    RendezvousLink& link_;
    ProcessHost& host_;
    RoundStoreHost& stores_;
    LogDirectory logs_;
    WorkerCommands commands_;
    AgentPersister persister_;
    EndEvidence evidence_;
    HangWatcher hangs_;
    TimerFifo timers_;
    GpuCheck gpus_;
    FaultInjector faults_;
    Supervisor supervisor_;
    StoreReach reach_;
    std::string asked_master_;  ///< static back end's, as the user wrote it; it may lead elsewhere in each round
    asio::io_context& loop_;
    asio::signal_set signals_;
    asio::steady_timer deadline_;
    asio::steady_timer feeding_;
    std::deque<SupervisorEvent> pending_;  // an action may bring the next event at once (OpenStore)
    bool stepping_ = false;
    bool finishing_ = false;  // what is left to do is the persister's
    std::unique_ptr<CommandSocket> command_socket_;
    std::map<std::uint32_t, std::int32_t> worker_pids_;  // by local rank, those that run
};

void Agent::Driver::start() {
    listen();
    auto handled = config_.handled_signals;
    if (config_.preemption_signal != 0) handled.push_back(config_.preemption_signal);
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
    hangs_.on_seen = [this](auto workers) { link_.workers_seen({commands_.last_round(), std::move(workers)}); };
    gpus_.on_notice = hangs_.on_notice;
    const auto timers = timers_.open(config_.workers.environment, temporary_directory(config_.workers.environment));
    if (auto made = logs_.make_base(); made.has_error())
        happen(SetUpRefused{made.error().context});
    else if (timers.has_error())
        happen(SetUpRefused{timers.error().context});
    else
        happen(Begin{});
}

void Agent::Driver::listen() {
    link_.on_message = [weak = weak_from_this()](native::Message message) {
        auto self = weak.lock();
        if (!self) return;
        if (auto* answer = std::get_if<native::CommandAnswer>(&message))
            self->answer(std::move(*answer));
        else if (const auto* fault = std::get_if<native::FaultOrdered>(&message))
            self->link_.fault_answer(self->faults_.inject(*fault));
        else if (const auto* seen = std::get_if<native::JobSeen>(&message))
            self->hangs_.job_seen(*seen);
        else
            self->daemon_said(std::move(message));
    };
    link_.on_fenced = forward<ClientFenced>();
    link_.on_lost = forward<ClientLost>();
    link_.on_progress = [weak = weak_from_this()](std::string line) {
        auto self = weak.lock();
        if (self && self->agent_.on_progress) self->agent_.on_progress(std::move(line));
    };
    persister_.on_line = [weak = weak_from_this()](const std::string& line) {
        auto self = weak.lock();
        if (self && self->agent_.on_progress) self->agent_.on_progress(line);
    };
    host_.on_event = [weak = weak_from_this()](ProcessEvent event) {
        if (auto self = weak.lock()) self->host_said(std::move(event));
    };
}

/// Nobody's job depends on it.
void Agent::Driver::take_commands() {
    auto opened = CommandSocket::open(loop_, config_.workers.job, [weak = weak_from_this()](native::Command command) {
        if (auto self = weak.lock()) self->link_.command(std::move(command));
    });
    if (opened.has_error())
        log(LogLevel::warning, "no commands can be given to this agent: ", muster::describe(opened.error()));
    else
        command_socket_ = std::move(opened.value());
}

void Agent::Driver::answer(native::CommandAnswer answer) {
    log(LogLevel::info, "a command was ", answer.done ? "carried out: " : "not carried out: ", answer.text);
    if (command_socket_) command_socket_->answer(std::move(answer));
}

void Agent::Driver::wait_for_signal() {
    signals_.async_wait([weak = weak_from_this()](boost::system::error_code failure, int signal) {
        auto self = weak.lock();
        if (failure || !self) return;
        self->wait_for_signal();
        if (self->agent_.on_signal) self->agent_.on_signal(signal);
        if (self->finishing_) return self->persister_.hurry();
        if (signal == self->config_.preemption_signal)
            self->happen(PreemptionAnnounced{signal});
        else
            self->happen(StopRequested{signal});
    });
}

void Agent::Driver::feed() {
    if (link_.may_feed()) host_.feed();
    if (!worker_pids_.empty()) evidence_.look(now());
    feeding_.expires_after(config_.lease / 10);
    feeding_.async_wait([weak = weak_from_this()](boost::system::error_code failure) {
        if (auto self = weak.lock(); self && !failure) self->feed();
    });
}

void Agent::Driver::arm_deadline() {
    const Instant at = supervisor_.deadline();
    if (at == no_deadline) {
        deadline_.cancel();
        return;
    }
    deadline_.expires_at(at);
    deadline_.async_wait([weak = weak_from_this()](boost::system::error_code failure) {
        if (auto self = weak.lock(); self && !failure) self->happen(Elapsed{});
    });
}

/// An assignment waits until it is known where this node reaches the store; whatever comes after it ends the wait, so
/// that nothing overtakes it.
void Agent::Driver::daemon_said(native::Message message) {
    reach_.hurry();
    auto* assignment = std::get_if<native::Assigned>(&message);
    if (assignment != nullptr && assignment->group_world_size > 1) return find_store(std::move(*assignment));
    if (assignment != nullptr) config_.workers.interface.clear();  // nobody is there to be led to
    happen(DaemonSaid{std::move(message)});
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
        spec.interface = found.interface;
        if (!found.trouble.empty() && agent_.on_progress) agent_.on_progress(found.trouble);
        happen(DaemonSaid{std::move(assignment)});
    });
}

void Agent::Driver::happen(SupervisorEvent event) {
    pending_.push_back(std::move(event));
    if (stepping_) return;
    stepping_ = true;
    while (!pending_.empty()) {
        const SupervisorEvent next = std::move(pending_.front());
        pending_.pop_front();
        const SupervisorStep step = supervisor_.step(next, now());
        for (const auto& line : step.why) log(LogLevel::info, line);
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
        notes.cause.text = EndEvidence::describe_stuck(stuck->pids);
    } else if (const auto* lost = std::get_if<GuardianLost>(&event)) {
        notes = notes_at(lost->at);
    }
    happen(HostSaid{std::move(event), std::move(notes)});
}

WorkerNotes Agent::Driver::notes_at(Instant at) const {
    WorkerNotes notes;
    notes.at_ns = rendezvous::clock_ns(at);
    using namespace std::chrono;
    notes.wall_time_s = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    return notes;
}

void Agent::Driver::carry_out(const OpenStore&) {
    happen(StoreOpened{stores_.open()});
}

void Agent::Driver::carry_out(const CloseStore&) {
    stores_.close();
}

void Agent::Driver::carry_out(const SendJoin& action) {
    gpus_.when_free([weak = weak_from_this(), join = action.join] {
        if (auto self = weak.lock()) self->link_.join(join);
    });
}

void Agent::Driver::carry_out(const StartWorkers& action) {
    auto made = commands_.make(action.assignment);
    if (made.has_value()) {
        set_journal_field("MUSTER_ROUND", cat(action.assignment.round));
        set_journal_field("MUSTER_NODE_RANK", cat(action.assignment.group_rank));
        evidence_.begin_round();
        hangs_.begin_round(action.assignment.rank_base);
        faults_.begin_round(action.assignment.round, action.assignment.rank_base);
        // The guardian may be hungry from a time when it could not be fed.
        if (link_.may_feed()) host_.feed();
        host_.start(std::move(made.value()));
        return;
    }
    // Nothing was started; the round learns it as it would learn of a program that is missing.
    log(LogLevel::error, "the workers cannot be started: ", made.error().context);
    for (std::uint32_t local_rank = 0; local_rank < config_.supervisor.join.slots; ++local_rank) {
        WorkerNotes notes = notes_at(now());
        notes.message = made.error().context;
        WorkerEnded ended{.local_rank = local_rank};
        ended.end = NotStarted{0, "prepare the worker"};
        ended.at = now();
        happen(HostSaid{std::move(ended), std::move(notes)});
    }
}

void Agent::Driver::carry_out(const TellWorkers& action) {
    hangs_.round_failed();
    commands_.tell_all(local::RoundEnded{action.why});
}

void Agent::Driver::carry_out(const NotifyWorkers& action) {
    commands_.tell_all(local::Notice{.why = action.why});
}

void Agent::Driver::carry_out(const SignalWorkers& action) {
    hangs_.rest();
    host_.signal_leaders(action.signal);
}

void Agent::Driver::carry_out(const SignalGroup& action) {
    host_.signal_group(action.local_rank, action.signal);
}

void Agent::Driver::carry_out(const PreemptWorkers& action) {
    commands_.tell_all(local::Notice{.why = action.why});
    const int signal = config_.preemption_signal;
    if (signal == 0) return;
    std::string deaf;
    for (const auto& [local_rank, pid] : worker_pids_)
        if (!handles_signal(pid, signal)) deaf += cat(deaf.empty() ? "" : ", ", local_rank);
    // To those without a handler it would be the end; and no rank may save without the others.
    if (deaf.empty()) return host_.signal_leaders(signal);
    if (agent_.on_progress)
        agent_.on_progress(cat(signal_name(signal), " was not passed on: local rank ", deaf, " has no handler for it"));
}

void Agent::Driver::carry_out(const SendCommand& action) {
    link_.command(action.command);
}

void Agent::Driver::carry_out(const KillTree&) {
    hangs_.rest();
    host_.kill_tree();
}

void Agent::Driver::carry_out(const KillGuardian&) {
    host_.kill_guardian();
}

void Agent::Driver::carry_out(const ReportFailed& action) {
    auto failures = action.failures;
    native::fit_report(failures);
    link_.workers_failed(std::move(failures));
}

void Agent::Driver::carry_out(const ReportSucceeded&) {
    link_.workers_succeeded();
}

void Agent::Driver::carry_out(const ReportRound& action) {
    auto report = action.report;
    native::fit_report(report.failures);
    commands_.keep_flight_records();
    commands_.forget_round();
    report.checkpoint_step = commands_.checkpoint_step();
    report.whereabouts = hangs_.whereabouts();
    persister_.start(commands_.snapshots(), commands_.last_round(), AgentPersister::When::between_rounds);
    link_.round_report(std::move(report));
}

void Agent::Driver::carry_out(const SendLeave& action) {
    gpus_.drop();
    link_.leave(action.why);
}

void Agent::Driver::carry_out(const AcknowledgeEnd&) {
    link_.end_acknowledged();
}

void Agent::Driver::carry_out(const Finish& action) {
    settle_flight_records(std::holds_alternative<JobSucceeded>(action.ending));
    reach_.cancel();
    commands_.forget_round();
    hangs_.rest();
    gpus_.drop();
    feeding_.cancel();
    deadline_.cancel();
    command_socket_.reset();
    logs_.remove_if_empty();
    if (!std::holds_alternative<JobSucceeded>(action.ending))
        persister_.start(commands_.snapshots(), commands_.last_round(), AgentPersister::When::at_the_end);
    // The daemon and the other agents need not wait for our disk, so the link closes meanwhile.
    link_.close([weak = weak_from_this(), ending = action.ending] {
        auto self = weak.lock();
        if (!self) return;
        self->finishing_ = true;
        // It comes from the loop, so that the owner may destroy the agent in on_end.
        self->persister_.when_done([weak, ending] {
            auto still = weak.lock();
            if (!still) return;
            still->signals_.cancel();
            if (still->agent_.on_end) still->agent_.on_end(ending);
        });
    });
}

void Agent::Driver::settle_flight_records(bool job_succeeded) {
    auto& files = commands_.flight_files();
    if (job_succeeded) return files.remove_all();
    commands_.keep_flight_records();
    if (!files.directory().empty() && agent_.on_progress)
        agent_.on_progress(cat("what each rank's communicators did last: muster flight '", files.directory(), "'"));
}

Agent::Agent(asio::io_context& loop, AgentConfig config, RendezvousLink& link, ProcessHost& host,
             RoundStoreHost& stores)
    : driver_(std::make_shared<Driver>(*this, loop, std::move(config), link, host, stores)) {}

Agent::~Agent() = default;

void Agent::start() {
    driver_->start();
}

}  // namespace muster::agent
