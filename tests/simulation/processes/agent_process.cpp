#include "tests/simulation/processes/agent_process.h"

#include <algorithm>
#include <csignal>

#include "tests/simulation/host/messenger.h"

namespace muster::simulation {

namespace {

GuardianBugs guardian_bugs(Plant plant) {
    return {.claims_empty_tree = plant == Plant::skips_kill_of_tree,
            .loses_end = plant == Plant::loses_end,
            .reports_end_twice = plant == Plant::reports_end_twice,
            .never_starves = plant == Plant::ignores_fencing || plant == Plant::holds_beyond_lease,
            .never_releases = plant == Plant::never_releases};
}

}  // namespace

AgentProcess::AgentProcess(Surroundings& world, Random random, Setting setting)
    : world_(world),
      random_(random),
      setting_(std::move(setting)),
      client_(setting_.client),
      supervisor_(setting_.supervisor),
      guardian_(world.events, world.chronicle, *this, random_.fork(),
                {.name = setting_.name,
                 .clock = setting_.clock,
                 .unfed_after = setting_.client.lease * 8 / 10,
                 .script = setting_.script,
                 .next_pid = setting_.next_pid,
                 .bugs = guardian_bugs(world.plant)}),
      alarm_(world.events, [this] { tick(); }) {
    guardian_.on_event = [this](agent::ProcessEvent event) {
        post([this, event = std::move(event)] {
            agent::HostEvent said{event, {}};
            if (const auto* ended = std::get_if<agent::WorkerEnded>(&event)) said.notes = notes(ended->at);
            if (const auto* lost = std::get_if<agent::GuardianLost>(&event)) said.notes = notes(lost->at);
            tell(said);
        });
    };
    guardian_.on_keeping = [this](std::uint32_t local_rank, agent::KeepWord word) {
        post([this, local_rank, word] { tell(agent::WorkerKeeps{local_rank, word}); });
    };
}

void AgentProcess::begin() {
    world_.chronicle.tell(setting_.name, " begins");
    feed();
    post([this] { tell(agent::Begin{}); });
}

// ---- the process ----

void AgentProcess::post(std::function<void()> work) {
    if (!alive()) return;
    posted_.push_back(std::move(work));
    if (!in_loop_) run_posted();
}

void AgentProcess::run_posted() {
    in_loop_ = true;
    while (life_ == Life::running && !posted_.empty()) {
        const auto work = std::move(posted_.front());
        posted_.pop_front();
        work();
        flush();
    }
    in_loop_ = false;
    if (life_ == Life::running) arm();
}

void AgentProcess::tick() {
    armed_deadline_ = no_deadline;
    if (life_ != Life::running) return;
    post([this] {
        give(rendezvous::TimePassed{});
        tell(agent::Elapsed{});
    });
}

void AgentProcess::arm() {
    const Instant deadline = std::min(client_.deadline(), supervisor_.deadline());
    if (deadline == armed_deadline_) return;
    armed_deadline_ = deadline;
    const Moment due = setting_.clock->moment(deadline);
    // A loop wakes a little late.
    alarm_.set(due == never ? never : due + random_.between(Duration{0}, Duration{1ms}));
}

void AgentProcess::feed() {
    world_.events.after(setting_.client.lease / 10, [this] {
        if (alive()) feed();
    });
    if (life_ == Life::running && client_.may_feed(now())) guardian_.feed();
    fence_held_workers();
}

/// As Agent::Driver does.
void AgentProcess::fence_held_workers() {
    if (life_ != Life::running || !supervisor_.holds_workers() || world_.plant == Plant::holds_beyond_lease) return;
    if (setting_.client.is_alone || now() - client_.heard_until() < setting_.client.lease * 88 / 100) return;
    world_.chronicle.count(Happening::held_workers_fenced);
    post([this] { tell(agent::ClientFenced{"no answer from the rendezvous"}); });
}

void AgentProcess::request_stop(int signal) {
    if (!alive()) return;
    world_.chronicle.tell(setting_.name, " is told to stop by ", signal_name(signal));
    world_.chronicle.count(stop_requested_at_ ? Happening::stop_requested_twice : Happening::stop_requested);
    if (!stop_requested_at_) stop_requested_at_ = world_.events.now();
    world_.invariants.agent(incarnation()).left = true;
    if (world_.plant == Plant::deaf_to_stop) return;
    post([this, signal] { tell(agent::StopRequested{signal}); });
}

void AgentProcess::stop() {
    if (life_ != Life::running) return;
    world_.chronicle.count(Happening::agent_stopped);
    world_.chronicle.tell(setting_.name, " is stopped (SIGSTOP)");
    life_ = Life::stopped;
    world_.invariants.agent(incarnation()).in_trouble = true;
    world_.invariants.agent(incarnation()).stopped_until = never;
}

void AgentProcess::go_on() {
    if (life_ != Life::stopped) return;
    world_.chronicle.tell(setting_.name, " continues");
    life_ = Life::running;
    world_.invariants.agent(incarnation()).in_trouble = false;
    world_.invariants.agent(incarnation()).stopped_until = world_.events.now();
    world_.invariants.trouble(incarnation());
    // Timers that came due and bytes that came in meanwhile are found in either order.
    if (random_.chance(500)) tick();
    run_posted();
    tick();
}

void AgentProcess::kill() {
    if (!alive()) return;
    world_.chronicle.count(Happening::agent_killed);
    world_.chronicle.tell(setting_.name, " is killed");
    life_ = Life::killed;
    world_.invariants.agent(incarnation()).gone = world_.events.now();
    world_.network.process_gone(this);
    guardian_.agent_gone([this] { guardian_reports_death(); });
}

void AgentProcess::guardian_reports_death() {
    native::Hello hello;
    hello.job = setting_.client.job;
    hello.node = setting_.client.node;
    const auto& key = setting_.client.key;
    const auto tls = key.tls_key.empty() ? nullptr : rendezvous::PskContext::client(key.tls_identity, key.tls_key);
    if (!tls && key.secret) hello.challenge = "the guardian's";
    // Of several one leads, and takes them; the others hear them in vain.
    for (const Address daemon : setting_.daemons)
        messengers_.push_back(
            std::make_unique<Messenger>(world_.events, world_.network, setting_.host, daemon, hello, key.secret, tls));
}

void AgentProcess::power_lost() {
    if (alive()) life_ = Life::killed;
    world_.invariants.agent(incarnation()).gone = world_.events.now();
    guardian_.power_lost();
}

// ---- the truth about its processes ----

void AgentProcess::process_started(Round round, std::int32_t pid, ProcessKind kind) {
    world_.invariants.process_started(incarnation(), round, pid, kind);
}
void AgentProcess::process_ended(Round round, std::int32_t pid) {
    world_.invariants.process_ended(incarnation(), round, pid);
}
void AgentProcess::process_held(std::int32_t pid) {
    world_.invariants.process_held(pid);
}
void AgentProcess::process_resumed(Round round, std::int32_t pid) {
    world_.invariants.process_resumed(incarnation(), round, pid);
}
void AgentProcess::worker_failed(Round round, std::int32_t) {
    world_.invariants.worker_failed(incarnation(), round);
    setting_.worker_failed(round);
}
void AgentProcess::end_reported(Round round, std::int32_t pid) {
    world_.invariants.end_reported(incarnation(), round, pid);
}

// ---- the supervisor's side ----

void AgentProcess::tell(const agent::SupervisorEvent& event) {
    if (!alive()) return;
    note_doom(event);
    agent::SupervisorStep step = supervisor_.step(event, now());
    for (const auto& line : step.why) world_.chronicle.tell(setting_.name, ": ", line.text);
    const bool over = !step.actions.empty() && std::holds_alternative<agent::Finish>(step.actions.back());
    if (over && world_.plant == Plant::acts_after_finish) step.actions.emplace_back(agent::OpenStore{});
    for (auto& action : step.actions) {
        if (!alive()) return world_.invariants.acted_after_finish(incarnation());
        act(action);
    }
}

/// The first thing that may make the supervisor stop this round's workers is what it is judged by (S9).
void AgentProcess::note_doom(const agent::SupervisorEvent& event) {
    if (doom_) return;
    if (std::holds_alternative<agent::ClientFenced>(event)) doom_ = DoomCause::fenced;
    if (std::holds_alternative<agent::ClientLost>(event)) doom_ = DoomCause::lost;
    if (std::holds_alternative<agent::StopRequested>(event)) doom_ = DoomCause::stop;
    if (const auto* said = std::get_if<agent::HostEvent>(&event)) {
        if (std::holds_alternative<agent::GuardianLost>(said->event)) doom_ = DoomCause::guardian_lost;
        const auto* ended = std::get_if<agent::WorkerEnded>(&said->event);
        if (ended != nullptr && !succeeded(ended->end)) {
            doom_ = ended->unfed ? DoomCause::unfed : DoomCause::worker_ended;
        }
    }
    const auto* said = std::get_if<agent::DaemonMessage>(&event);
    if (said == nullptr) return;
    if (std::holds_alternative<native::JobEnded>(said->message)) doom_ = DoomCause::job_ended;
    if (std::holds_alternative<native::Drain>(said->message)) doom_ = DoomCause::drain;
    if (const auto* refused = std::get_if<native::Refused>(&said->message)) {
        doom_ = DoomCause::refused;
        if (refused->reason == native::RefusalReason::secret && !setting_.client.older_keys.empty())
            world_.chronicle.violated("secret", cat("a node has the job's secret, and is refused: ", refused->why));
    }
    const auto* ended = std::get_if<native::RoundEnded>(&said->message);
    if (ended != nullptr && ended->round == round_) doom_ = DoomCause::round_ended;
    if (doom_) doom_said_ = said->message;
}

/// Once a round: what made the supervisor begin is what counts.
void AgentProcess::judge_doom(DoomCause otherwise) {
    if (doom_judged_) return;
    doom_judged_ = true;
    // A guardian that was not fed has killed them before anybody could decide it.
    if (doom_ != DoomCause::unfed && !guardian_.worker_alive(round_)) return;
    world_.invariants.doomed(incarnation(), round_, doom_.value_or(otherwise), &doom_said_);
}

void AgentProcess::act(agent::SupervisorAction& action) {
    if (auto* join = std::get_if<agent::SendJoin>(&action)) {
        world_.invariants.drained(incarnation(), Invariants::MayHold::yes);
        if (world_.plant == Plant::never_rejoins && ++join_count_ > 1) return;
        carry_out(client_.join(std::move(join->join), now()));
    } else if (const auto* start = std::get_if<agent::StartWorkers>(&action)) {
        start_workers(*start);
    } else if (const auto* keep = std::get_if<agent::KeepWorkers>(&action)) {
        keeps_ = keep->local_ranks;
        guardian_.keep(keeps_);
    } else if (std::holds_alternative<agent::SendHold>(action)) {
        hold_workers(keeps_);
    } else if (const auto* signal = std::get_if<agent::SignalWorkers>(&action)) {
        judge_doom(DoomCause::other);
        guardian_.signal_leaders(signal->signal);
    } else if (const auto* rest = std::get_if<agent::SignalGroup>(&action)) {
        guardian_.signal_group(rest->local_rank, rest->signal);
    } else if (std::holds_alternative<agent::KillTree>(action)) {
        judge_doom(DoomCause::worker_ended);
        guardian_.kill_tree();
    } else if (std::holds_alternative<agent::KillGuardian>(action)) {
        guardian_.kill_guardian();
    } else if (auto* failed = std::get_if<agent::ReportFailed>(&action)) {
        carry_out(client_.workers_failed(std::move(failed->failures), now()));
    } else if (std::holds_alternative<agent::ReportSucceeded>(action)) {
        world_.invariants.through(incarnation(), round_);
        carry_out(client_.workers_succeeded(now()));
    } else if (auto* report = std::get_if<agent::ReportRound>(&action)) {
        world_.invariants.drained(incarnation(), Invariants::MayHold::yes);  // the Join may wait for a health check
        carry_out(client_.round_report(std::move(report->report), now()));
    } else if (auto* leave = std::get_if<agent::SendLeave>(&action)) {
        carry_out(client_.leave(std::move(leave->why), now()));
    } else if (std::holds_alternative<agent::AcknowledgeEnd>(action)) {
        carry_out(client_.end_acknowledged(now()));
    } else if (std::holds_alternative<agent::OpenStore>(action)) {
        port_ = static_cast<std::uint16_t>(setting_.port_first + port_count_++ % 100);
        world_.network.listen({setting_.host, port_}, this);
        post([this] { tell(agent::StoreOpened{agent::RoundPorts{port_, port_}}); });
    } else if (std::holds_alternative<agent::CheckHealth>(action)) {
        world_.events.after(setting_.check_takes(), [this] { post([this] { check_health(); }); });
    } else if (std::holds_alternative<agent::CloseStore>(action)) {
        world_.network.unlisten({setting_.host, port_});
    } else if (auto* asked = std::get_if<agent::SendCommand>(&action)) {
        carry_out(client_.command(std::move(asked->command), now()));
    } else if (auto* end = std::get_if<agent::Finish>(&action)) {
        finish(std::move(end->ending));
    }
}

void AgentProcess::check_health() {
    using Health = agent::HealthChecked::Health;
    auto found = setting_.check();
    if (found.health == Health::sick) found_ = found;
    if (found.health == Health::healthy && world_.plant == Plant::never_heals) found = found_;
    tell(found);
}

void AgentProcess::hold_workers(const std::vector<std::uint32_t>& local_ranks) {
    guardian_.hold();
    if (world_.plant != Plant::takes_asked_for_held) return;
    for (const auto local_rank : local_ranks)
        post([this, local_rank] { tell(agent::WorkerKeeps{local_rank, agent::KeepWord::held}); });
}

void AgentProcess::start_workers(const agent::StartWorkers& start) {
    const auto& assignment = start.assignment;
    world_.invariants.assigned(incarnation(), assignment);
    round_ = assignment.round;
    round_secret_ = assignment.secret;
    doom_.reset();
    doom_judged_ = false;
    doom_said_ = native::Hello{};
    std::vector<agent::WorkerCommand> commands;
    for (std::uint32_t local = 0; local < setting_.supervisor.join.slots; ++local)
        if (std::ranges::find(start.kept, local) == start.kept.end()) commands.emplace_back().local_rank = local;
    // Its guardian may be hungry from a time when it could not be fed.
    if (client_.may_feed(now())) guardian_.feed();
    guardian_.set_round(round_);
    guardian_.resume(start.kept, round_);
    guardian_.start(std::move(commands));
    if (world_.plant == Plant::succeeds_too_early) carry_out(client_.workers_succeeded(now()));
}

agent::WorkerNotes AgentProcess::notes(Instant at) const {
    agent::WorkerNotes notes;
    notes.at_ns = rendezvous::clock_ns(at);
    return notes;
}

/// What is queued still goes out; then the process is gone, and its guardian with it.
void AgentProcess::finish(agent::Ending ending) {
    if (world_.plant == Plant::never_finishes) return;
    world_.invariants.drained(incarnation(), Invariants::MayHold::no);
    world_.chronicle.tell(setting_.name, " finishes");
    if (std::holds_alternative<agent::NoRendezvous>(ending)) world_.chronicle.count(Happening::rendezvous_lost);
    ending_ = std::move(ending);
    flush();
    close(attempt_);
    close(stream_);
    world_.network.process_gone(this);
    world_.invariants.agent(incarnation()).gone = world_.events.now();
    guardian_.agent_gone([] {});
    life_ = Life::finished;
    setting_.finished();
}

}  // namespace muster::simulation
