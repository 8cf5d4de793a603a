// Invariants: nodes that their own health check found sick (rendezvous/STATES.md, Sick nodes).
//
//   sick     a node that reports something takes part only where more nodes report the same than may park, or as the
//            host of the rendezvous;
//   breaker  never are more nodes parked for one finding than max(1, 5 %);
//   parked   a node is parked for what itself reports.
//
// That a parked node costs no restart is the budget's. A daemon that ends rounds because of one goes in circles, which
// L1 and L3 find. What is demanded in peace
// ("short", "healed") is the world's own (world_health.cpp).
#include <algorithm>
#include <utility>

#include "tests/simulation/invariants/invariants.h"

namespace muster::simulation {

namespace {

/// The simulated checks say what they found before the colon; the rest is another one on each node.
std::string_view kind_of(std::string_view finding) {
    return finding.substr(0, finding.find(':'));
}

/// So many of these nodes may park for one finding: counted apart from the daemon, which must keep to it.
std::uint32_t may_park(std::uint32_t nodes) {
    return std::max(1U, nodes / 20);
}

}  // namespace

/// The daemon may still count an agent that is gone, until its connection or its lease is over; one that stood still or
/// was restarted counts from then on.
bool Invariants::may_count(const AgentTruth& agent) const {
    if (!agent.gone) return true;
    const auto lost_timeout = Duration{1ms} * jobs_[agent.job].terms.lost_timeout_ms;
    return events_.now() < std::max({*agent.gone, daemon_started_, daemon_back_}) + lost_timeout + 2 * lease_;
}

/// Of the agents that may be members of the job, or of those that it needs.
std::uint32_t Invariants::parked_max(std::size_t job) const {
    const auto members = std::ranges::count_if(
        agents_, [&](const auto& entry) { return entry.second.job == job && may_count(entry.second); });
    return may_park(std::max(static_cast<std::uint32_t>(members), jobs_[job].terms.nodes_min));
}

bool Invariants::connected(Incarnation incarnation) const {
    return std::ranges::any_of(connections_, [&](const auto& entry) {
        return entry.second.incarnation == incarnation && entry.second.counts;
    });
}

void Invariants::joined(Incarnation incarnation, const native::Join& join) {
    AgentTruth& agent = agents_.at(incarnation);
    if (join.unhealthy.empty() && !agent.parked_for.empty()) chronicle_.count(Happening::sick_node_came_back);
    const JobTruth& job = jobs_[agent.job];
    const bool crossed = std::ranges::any_of(job.rounds, [&](const auto& entry) {
        const auto& [key, round] = entry;
        return key.second > join.last_round &&
               std::ranges::any_of(round.members, [&](const auto& member) { return member.second == incarnation; });
    });
    if (!crossed)
        agent.kept_finding.clear();
    else if (agent.kept_finding.empty())
        agent.kept_finding = agent.finding;
    agent.finding = join.unhealthy;
    agent.goes_on = false;
    // That the daemon takes its word back is seen by what it answers.
    if (agent.finding.empty()) return;
    agent.parked_for.clear();
    const auto same = [&](const AgentTruth& other) {
        const auto is_same = [&](const std::string& one) {
            return !one.empty() && kind_of(one) == kind_of(agent.finding);
        };
        return other.job == agent.job && may_count(other) && (is_same(other.finding) || is_same(other.kept_finding));
    };
    std::uint32_t count = 0;
    bool host_too = false;
    for (const auto& [number, other] : agents_) {
        if (!same(other)) continue;
        ++count;
        host_too = host_too || other.hosts;
    }
    // At least so many may park, however few nodes the daemon knows at this moment.
    if (count <= may_park(job.terms.nodes_min) && !host_too) return;
    for (auto& [number, other] : agents_)
        if (same(other)) other.goes_on = true;
}

void Invariants::told_parked(Incarnation incarnation, const std::string& why, bool held_back) {
    AgentTruth& agent = agents_.at(incarnation);
    // It may have said something else since that was decided, and what one that is gone said counts for the daemon
    // alone.
    if ((held_back || agent.gone) && (agent.finding.empty() || !why.ends_with(agent.finding))) return;
    chronicle_.count(Happening::sick_node_parked);
    if (agent.finding.empty() || why.find(agent.finding) == std::string::npos)
        return violated("parked", cat(agent.name, " reports '", agent.finding, "' and is told: ", why));
    // Whoever is parked stays so when nodes leave, and may be told again.
    if (!std::exchange(agent.parked_for, agent.finding).empty()) return;
    const auto parked = std::ranges::count_if(agents_, [&](const auto& entry) {
        const AgentTruth& other = entry.second;
        return other.job == agent.job && !other.gone && other.is_parked() &&
               kind_of(other.parked_for) == kind_of(agent.finding) && connected(entry.first);
    });
    if (parked > parked_max(agent.job))
        violated("breaker", cat(parked, " nodes of ", jobs_[agent.job].name, " are parked for one finding: ", why));
}

/// The daemon says that the node waits as any other one does.
void Invariants::told_waiting(Incarnation incarnation) {
    AgentTruth& agent = agents_.at(incarnation);
    if (agent.finding.empty()) agent.parked_for.clear();
}

void Invariants::took_part(Incarnation incarnation, bool held_back) {
    AgentTruth& agent = agents_.at(incarnation);
    agent.parked_for.clear();
    if (agent.finding.empty()) return;
    // What one that is gone said last counts for the daemon alone.
    if (!held_back && !agent.gone && !agent.goes_on && !agent.hosts)
        violated("sick", cat(agent.name, " takes part in a round, and reports: ", agent.finding));
    chronicle_.count(Happening::sick_node_went_on);
}

/// The daemon has forgotten the job.
void Invariants::forget_parked(const JobTruth& job) {
    for (auto& [incarnation, agent] : agents_)
        if (&jobs_[agent.job] == &job) agent.parked_for.clear();
}

bool Invariants::any_parked(std::size_t job) const {
    return std::ranges::any_of(agents_, [&](const auto& entry) {
        const AgentTruth& agent = entry.second;
        return agent.job == job && !agent.gone && !agent.left && agent.is_parked() && !agent.goes_on &&
               connected(entry.first);
    });
}

bool Invariants::any_parked() const {
    for (std::size_t job = 0; job < jobs_.size(); ++job)
        if (any_parked(job)) return true;
    return false;
}

}  // namespace muster::simulation
