// When the faults are over: everything is repaired, and the world has to come right in bounded time.
//
//   L1  with enough healthy nodes a round runs, or the job has ended;
//   L2  a stop request ends every worker within the grace and the kill's delay;
//   L3  every launcher exits.
#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/simulation/world.h"

namespace muster::simulation {

namespace {

constexpr Duration slack = 5s;       ///< connecting, back-off, answers on their way, a loop that is late
constexpr Duration kill_delay = 1s;  ///< from SIGKILL to the last report

}  // namespace

void World::make_peace() {
    peace_ = true;
    chronicle_.tell("peace");
    heal_all();
    network_.heal_all();
    network_.set_temper(scenario_.temper.calm());
    if (!scenario_.embedded) start_daemon();
    daemon_.go_on();
    for (const auto& replica : replicas_) replica->go_on();
    etcd_.cut_off.clear();
    if (std::exchange(etcd_.is_away, false)) etcd_.keys.prolong_leases(etcd_time(events_.now()));
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        Node& node = nodes_[i];
        if (node.dark) network_.power_back(node.host);
        node.dark = false;
        for (const auto& agent : node.agents) {
            agent->go_on();
            agent->guardian().calm_down();
        }
        if (!node.agents.empty() && scenario_.jobs[node.job].agents_come_back) plan_start(i, 100ms);
    }
    Duration settled{};
    for (const JobScenario& job : scenario_.jobs) settled = std::max(settled, settle_limit(job));
    settled_at_ = events_.now() + settled;
    events_.after(settled, [this] {
        demand_running();
        demand_healed();
        stop_endless();
    });
    Duration ended{};
    for (const JobScenario& job : scenario_.jobs) {
        // Nodes that are parked wait as long as others do, and then their own join timeout.
        const auto joins = job.join_timeout * (job.health_interval > 0s ? 2 : 1);
        ended = std::max(ended, settled + job.work + joins + job.grace + end_linger + slack * 2);
    }
    events_.after(ended, [this] { demand_end(); });
}

/// Members that died without a word hold up the next seal for the lost time-out; then the last call, and the quiet
/// lease of a daemon that has just started. A sick node is well from its next check on.
Duration World::settle_limit(const JobScenario& job) const {
    const native::JobTerms& terms = job.terms;
    const Duration waits = Duration{1ms} * (terms.last_call_ms * 2 + terms.lease_ms * 4 + terms.lost_timeout_ms);
    return waits + job.grace + kill_delay + slack + job.health_interval;
}

void World::demand_running() {
    for (std::size_t index = 0; index < scenario_.jobs.size(); ++index) {
        const native::JobTerms& terms = scenario_.jobs[index].terms;
        // An embedded daemon is gone with a launcher that nobody starts again; while it lingers, it seals nothing.
        const bool left_behind = scenario_.embedded && !nodes_.front().alive();
        if (invariants_.job(index).ever_ended || !any_daemon_runs() || left_behind) continue;
        const std::uint32_t healthy = fit_nodes(index);
        std::uint32_t running = 0;
        std::string phases;
        for (const Node& node : nodes_) {
            if (node.job != index || !node.alive() || node.odd) continue;
            const agent::Phase phase = node.agent()->phase();
            phases += cat(' ', node.agent()->name(), ' ', name(phase), ',');
            // Drained: all its workers exited 0, and it waits for the others.
            if (phase == agent::Phase::running || phase == agent::Phase::drained) ++running;
        }
        if (healthy < terms.nodes_min || running >= terms.nodes_min) continue;
        chronicle_.violated("L1", cat(scenario_.jobs[index].name, " has ", healthy, " healthy nodes and needs ",
                                      terms.nodes_min, ", but does not run:", phases, " daemon: ", daemon().status()));
    }
}

void World::stop_endless() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (!scenario_.jobs[nodes_[i].job].endless || !nodes_[i].alive()) continue;
        nodes_[i].agent()->request_stop(SIGTERM);
        demand_stopped(i, nodes_[i].agent());
    }
}

void World::demand_stopped(std::size_t index, AgentProcess* agent) {
    const Duration grace = scenario_.jobs[nodes_[index].job].grace;
    events_.after(grace + kill_delay, [this, agent, asked = events_.now()] {
        // One that was stopped or killed meanwhile is its guardian's to end.
        const AgentTruth& truth = invariants_.agent(agent->incarnation());
        const bool disturbed = truth.last_trouble >= asked || truth.in_trouble;
        if (disturbed || !agent->guardian().anything_alive()) return;
        chronicle_.violated("L2", cat(agent->name(), " was told to stop, and its workers still run"));
    });
}

void World::demand_end() {
    for (const Node& node : nodes_) {
        if (!node.alive()) continue;
        chronicle_.violated("L3", cat(node.agent()->name(), " never exits: ", name(node.agent()->phase()),
                                      "; daemon: ", daemon().status()));
        return;
    }
}

bool World::over() const {
    if (!peace_) return false;
    return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) {
        if (node.alive()) return false;
        return std::none_of(node.agents.begin(), node.agents.end(),
                            [](const auto& agent) { return agent->guardian().anything_alive(); });
    });
}

}  // namespace muster::simulation
