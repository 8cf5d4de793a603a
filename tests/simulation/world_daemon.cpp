// The daemon's life: started, killed and started again by somebody, or part of the first node's launcher.
#include "tests/simulation/world.h"

namespace muster::simulation {

/// As launcher/embedded_daemon.cpp has it; a musterd is told that it is the first one, or knows nothing of before.
rendezvous::ServerConfig World::daemon_config() const {
    using rendezvous::QuietStart;
    rendezvous::ServerConfig config;
    if (scenario_.embedded) config.embedded_for = scenario_.jobs[0].name;
    config.quiet_start = scenario_.embedded || events_.now() <= 1s ? QuietStart::until_full : QuietStart::always;
    return config;
}

bool World::agents_may_start() const {
    return !scenario_.embedded || network_faults_allowed();
}

void World::start_daemon() {
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
    // One that comes with other terms would teach them to the next daemon, and where no agent is started for a while,
    // one that has not been heard yet would look like one that is.
    for (Node& node : nodes_) {
        if (!node.alive()) continue;
        const bool unheard = invariants_.agent(node.agent()->incarnation()).heard_daemon < Moment{0};
        const bool too_new = scenario_.embedded && unheard && invariants_.job(node.job).last_sealed;
        if (node.odd || too_new) node.agent()->kill();
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
