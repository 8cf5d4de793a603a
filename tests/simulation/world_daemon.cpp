// The daemon's life: started, killed and started again by somebody, or part of the first node's launcher.
#include <algorithm>

#include "tests/simulation/job_secret.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

/// As launcher/node/embedded_daemon.cpp has it; a musterd is told that it is the first one, or knows nothing of before.
rendezvous::ServerConfig World::daemon_config() const {
    using rendezvous::StartHold;
    rendezvous::ServerConfig config;
    config.fan_out = scenario_.fan_out;
    config.heartbeats_per_second = scenario_.heartbeats_per_second;
    if (scenario_.embedded) config.embedded_for = scenario_.jobs[0].name;
    config.start_hold = scenario_.embedded || events_.now() <= 1s ? StartHold::until_full : StartHold::always;
    if (scenario_.secret) {
        config.secret = [](std::string_view) { return std::vector{hash_with(job_secret)}; };
        config.secret_seed = describe(events_.now());  // another one for each daemon
    }
    return config;
}

bool World::agents_may_start() const {
    return !scenario_.embedded || network_faults_allowed();
}

/// Each on a host of its own. Their state outlives all of them, so nobody has to teach anybody.
void World::add_replicas() {
    Random aside(random_);
    for (int count = 0; count < 2; ++count) {
        replica_clocks_.push_back(
            std::make_unique<HostClock>(HostClock{aside.between(Duration{0}, Duration{3600s}), 0}));
        const auto host = static_cast<HostIndex>(nodes_.size() + replicas_.size() + 1);
        replicas_.push_back(std::make_unique<DaemonProcess>(surroundings_, aside.fork(), *replica_clocks_.back(),
                                                            Address{host, daemon_address.port}));
    }
    if (aside.chance(200)) etcd_.slowest = 100ms;
    events_.after(aside.between(Duration{0}, Duration{1s}), [this] { start_daemon(daemon_); });
    for (const auto& replica : replicas_)
        events_.after(aside.between(Duration{0}, Duration{3s}), [this, &replica] { start_daemon(*replica); });
}

DaemonProcess& World::daemon() {
    DaemonProcess* found = &daemon_;
    for (const auto& replica : replicas_)
        if (!found->leads() && (replica->leads() || (!found->running() && replica->running()))) found = replica.get();
    return *found;
}

/// Mostly the one whose end hurts.
DaemonProcess& World::pick_daemon() {
    if (replicas_.empty() || random_.chance(700)) return daemon();
    const auto which =
        static_cast<std::size_t>(random_.between(std::int64_t{0}, static_cast<std::int64_t>(replicas_.size())));
    return which == 0 ? daemon_ : *replicas_[which - 1];
}

bool World::any_daemon_runs() const {
    return daemon_.running() || std::ranges::any_of(replicas_, [](const auto& replica) { return replica->running(); });
}

void World::start_daemon(DaemonProcess& daemon) {
    if (daemon.running()) return;
    if (events_.now() > 3s) chronicle_.count(Happening::daemon_restarted);
    daemon.stand_for_election(daemon_config(), etcd_);
}

void World::start_daemon() {
    if (scenario_.replicated) {
        start_daemon(daemon_);
        for (const auto& replica : replicas_) start_daemon(*replica);
        return;
    }
    if (daemon_.running()) return;
    if (events_.now() > 1s) chronicle_.count(Happening::daemon_restarted);
    // One that goes on from its state has nothing to learn.
    if (!scenario_.keeps_state) calm_until_ = events_.now() + scenario_.lease * 3 / 2;
    daemon_.start(daemon_config(), disk());
    if (scenario_.keeps_state) return;
    events_.at(calm_until_, [this] {
        if (!peace_ && network_faults_allowed()) network_.set_temper(scenario_.temper);
    });
}

void World::end_daemon() {
    if (!daemon_.running()) return;
    if (scenario_.embedded) chronicle_.count(Happening::daemon_lost_with_host);
    daemon_.kill();
    if (scenario_.keeps_state) return;
    network_.heal_all();
    network_.set_temper(scenario_.temper.calm());
    // Where no agent is started for a while, one that has not been heard yet would look like one that is.
    for (Node& node : nodes_) {
        if (!node.alive()) continue;
        const bool unheard = invariants_.agent(node.agent()->incarnation()).heard_daemon < Moment{0};
        const bool too_new = scenario_.embedded && unheard && invariants_.job(node.job).last_sealed;
        if (too_new) node.agent()->kill();
    }
}

/// The launcher stays until every agent has acknowledged the end, at most for end_linger, whatever it ended for.
void World::host_finished() {
    events_.after(end_linger, [this] {
        if (nodes_.front().alive() || !daemon_.running()) return;
        chronicle_.count(Happening::daemon_left_with_host);
        daemon_.kill();
    });
}

}  // namespace muster::simulation
