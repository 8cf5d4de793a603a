// What the nodes' health checks find, and what is demanded of a world with sick nodes when there is peace:
//
//   healed  a node whose check passes again is parked no more;
//   short   a job that lacks nodes because some are parked says so where it gives up, which is exit code 75.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/simulation/world.h"

namespace muster::simulation {

/// Of one kind, in the words of this node.
void World::fall_sick(std::size_t index, std::string kind) {
    Node& node = nodes_[index];
    const JobScenario& job = scenario_.jobs[node.job];
    if (node.odd || job.health_interval <= 0s) return;
    chronicle_.count(Happening::node_fell_sick);
    node.finding = cat(kind, ": GPU ", random_.between(0, 7), " of host", node.host, ", ", random_.between(10, 99));
    node.lasting = random_.chance(job.lasting_permille);
    chronicle_.tell("the check of ", node.name, " finds ", node.finding, node.lasting ? ", and that lasts" : "");
    if (node.lasting) return;
    events_.after(random_.between(Duration{500ms}, Duration{20s}), [this, index, count = ++node.sickness] {
        if (nodes_[index].sickness != count || nodes_[index].lasting) return;
        nodes_[index].finding.clear();
    });
}

void World::break_check(std::size_t job) {
    chronicle_.count(Happening::check_broke);
    for (std::size_t i = 0; i < nodes_.size(); ++i)
        if (nodes_[i].job == job) fall_sick(i, "no such file");
}

void World::make_sick() {
    const Node* const node = pick_alive();
    if (node == nullptr) return;
    if (random_.chance(scenario_.jobs[node->job].broken_permille)) return break_check(node->job);
    fall_sick(static_cast<std::size_t>(node - nodes_.data()), random_.chance(500) ? "hot" : "lost");
}

agent::HealthChecked World::check_health(const Node& node) {
    using Health = agent::HealthChecked::Health;
    if (!peace_ && random_.chance(50)) return {Health::unknown, "no answer in time"};
    if (node.finding.empty()) return {};
    return {Health::sick, node.finding};
}

void World::heal_all() {
    for (Node& node : nodes_)
        if (!node.lasting) node.finding.clear();
}

/// Living nodes that have to take part where the job needs them: those that report nothing or are well again, and those
/// whose finding more nodes share than may park, or the host of the rendezvous.
std::uint32_t World::fit_nodes(std::size_t job) {
    struct Group {
        std::uint32_t count = 0;
        bool has_host = false;
    };
    std::map<std::string, Group> sick;
    std::uint32_t fit = 0;
    for (const Node& node : nodes_) {
        if (node.job != job || !node.alive() || node.odd) continue;
        const auto& reported = invariants_.agent(node.agent()->incarnation()).finding;
        if (node.finding.empty() || reported.empty()) {
            ++fit;
            continue;
        }
        auto& group = sick[reported.substr(0, reported.find(':'))];
        ++group.count;
        group.has_host = group.has_host || hosts_daemon(node);
    }
    for (const auto& [kind, group] : sick)
        if (group.count > invariants_.parked_max(job) || group.has_host) fit += group.count;
    return fit;
}

void World::demand_healed() {
    for (const Node& node : nodes_) {
        if (!node.alive() || !node.finding.empty()) continue;
        const auto& truth = invariants_.agent(node.agent()->incarnation());
        if (truth.parked_for.empty() || truth.left) continue;
        chronicle_.violated("healed", cat(truth.name, " is well again, and still parked for: ", truth.parked_for));
    }
}

/// For a launcher that has just given up.
void World::demand_reason(const Node& node) {
    const auto* gave_up = std::get_if<agent::NoRendezvous>(&*node.agent()->ending());
    // Not one that has lost its daemon.
    const bool waited = gave_up != nullptr && (gave_up->why.find(" nodes joined at ") != std::string::npos ||
                                               gave_up->why.find(" is parked until ") != std::string::npos);
    const auto& own = invariants_.agent(node.agent()->incarnation());
    const bool parked_itself = own.is_parked() && !own.goes_on;
    if (!waited || events_.now() < settled_at_ || (!parked_itself && !invariants_.any_parked(node.job))) return;
    chronicle_.count(Happening::sick_job_ended);
    if (gave_up->why.find(" is parked until its health check passes: ") == std::string::npos)
        chronicle_.violated("short", cat(own.name, " does not say that parked nodes are missing: ", gave_up->why));
}

}  // namespace muster::simulation
