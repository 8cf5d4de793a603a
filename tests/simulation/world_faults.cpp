// The faults that befall a world while there is no peace.
#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/rounds/terms.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

void World::plan_faults() {
    const FaultScenario& faults = scenario_.faults;
    plan_fault(faults.reset, &World::reset_connection);
    plan_fault(faults.stall, &World::stall_connection);
    plan_fault(faults.partition, &World::partition);
    plan_fault(faults.tampering, &World::tamper);
    plan_fault(faults.agent_kill, &World::kill_agent);
    plan_fault(faults.agent_stop, &World::stop_agent);
    plan_fault(faults.guardian_kill, &World::kill_guardian);
    plan_fault(faults.power_loss, &World::lose_power);
    plan_fault(faults.daemon_kill, &World::kill_daemon);
    plan_fault(faults.daemon_pause, &World::pause_daemon);
    plan_fault(faults.etcd_cut, &World::cut_from_etcd);
    plan_fault(faults.etcd_away, &World::lose_etcd);
    plan_fault(faults.stop_request, &World::request_stop);
    plan_fault(faults.drain, &World::drain_node);
    plan_fault(faults.twin, &World::start_twin);
    plan_fault(faults.sickness, &World::make_sick);
}

void World::plan_fault(Duration mean, void (World::*fault)()) {
    if (mean == never) return;
    events_.after(random_.between(mean / 3, mean * 5 / 3), [this, mean, fault] {
        if (peace_) return;
        (this->*fault)();
        plan_fault(mean, fault);
    });
}

World::Node* World::pick_alive() {
    std::vector<Node*> alive;
    for (Node& node : nodes_) {
        if (node.alive()) alive.push_back(&node);
    }
    return alive.empty() ? nullptr : random_.pick(alive);
}

// ---- what the invariants have to know: who was disturbed, and when ----

void World::mark_host(HostIndex host) {
    for (const Node& node : nodes_) {
        if (node.host == host && node.agent() != nullptr) invariants_.trouble(node.agent()->incarnation());
    }
}

void World::set_trouble(HostIndex host, bool in_trouble) {
    trouble_count_[host] += in_trouble ? 1 : -1;
    for (Node& node : nodes_) {
        if (node.host != host || node.agent() == nullptr) continue;
        AgentTruth& truth = invariants_.agent(node.agent()->incarnation());
        truth.in_trouble = trouble_count_[host] > 0 || node.agent()->life() == AgentProcess::Life::stopped;
        truth.last_trouble = events_.now();
    }
}

bool World::network_faults_allowed() const {
    return scenario_.keeps_state || (daemon_.running() && events_.now() >= calm_until_);
}

// ---- the network ----

void World::reset_connection() {
    Node* const node = pick_alive();
    if (node == nullptr || !network_.reset_one(node->host)) return;
    chronicle_.count(Happening::connection_reset);
    chronicle_.tell("a connection of ", node->name, " is reset");
    mark_host(node->host);
}

void World::stall_connection() {
    Node* const node = pick_alive();
    const Duration duration = random_.between(scenario_.lease / 5, scenario_.lease * 2);
    if (node == nullptr || !network_faults_allowed() || !network_.stall_one(node->host, duration)) return;
    chronicle_.count(Happening::connection_stalled);
    chronicle_.tell("a connection of ", node->name, " stalls for ", describe(duration));
    set_trouble(node->host, true);
    events_.after(duration, [this, host = node->host] { set_trouble(host, false); });
}

/// One group of hosts, which may hold the daemon's, is cut off from the others, in one direction or in both.
void World::partition() {
    if (!network_faults_allowed()) return;
    std::vector<HostIndex> apart;
    std::vector<HostIndex> rest;
    for (HostIndex host = 0; host <= last_host(); ++host) (random_.chance(400) ? apart : rest).push_back(host);
    if (apart.empty() || rest.empty()) return;
    const bool one_way = random_.chance(400);
    const Duration longest = random_.chance(200) ? scenario_.lease * 12 : scenario_.lease * 3;
    const Duration duration = random_.between(scenario_.lease / 5, longest);
    chronicle_.count(one_way ? Happening::partition_one_way : Happening::partition_two_way);
    std::string names;
    for (const HostIndex host : apart) names += cat(" host", host);
    chronicle_.tell("partition", one_way ? " (one way)" : "", " of", names, " for ", describe(duration));
    for (const HostIndex a : apart) {
        for (const HostIndex b : rest) {
            cut(a, b, duration);
            if (!one_way) cut(b, a, duration);
        }
    }
}

void World::cut(HostIndex from, HostIndex to, Duration duration) {
    network_.cut(from, to);
    set_trouble(from, true);
    set_trouble(to, true);
    events_.after(duration, [this, from, to] {
        network_.heal(from, to);
        set_trouble(from, false);
        set_trouble(to, false);
    });
}

/// The man in the middle says to the daemon what an agent has said before, changes what one end says, now or in the
/// next handshake, or answers in the daemon's place.
void World::tamper() {
    Node* const node = pick_alive();
    if (node == nullptr || !network_faults_allowed()) return;
    impostors_.push_back(std::make_unique<Impostor>(surroundings_, random_.fork()));
    // Repeated words are another connection's, and excuse nobody.
    if (random_.chance(160)) return impostors_.back()->resay(last_host() + 1, daemon().address());
    mark_host(node->host);
    if (random_.chance(600) && network_.tamper_one(node->host)) return;
    if (random_.chance(500)) {
        chronicle_.tell("the next handshake of ", node->name, " is changed");
        network_.tamper_next(node->host);
    } else {
        chronicle_.tell("an impostor answers ", node->name);
        network_.divert(node->host, impostors_.back().get());
    }
    network_.reset_one(node->host);
}

// ---- processes and hosts ----

void World::kill_agent() {
    Node* const node = pick_alive();
    if (node == nullptr) return;
    // He may await the guardian's words about it.
    if (scenario_.faults.tampering != never && random_.chance(300)) network_.tamper_next(node->host);
    node->agent()->kill();
    if (hosts_daemon(*node)) end_daemon();
    const auto index = static_cast<std::size_t>(node - nodes_.data());
    if (!scenario_.jobs[node->job].agents_come_back) return;
    // Whoever starts the host anew takes longer than its guardian, which must clear up first: nobody else knows of it.
    const Duration soonest = hosts_daemon(*node) ? scenario_.lease * 3 / 2 : Duration{20ms};
    plan_start(index, soonest + random_.between(Duration{0}, Duration{4s}));
}

void World::stop_agent() {
    Node* const node = pick_alive();
    if (node == nullptr) return;
    AgentProcess* const agent = node->agent();
    agent->stop();
    const bool host = hosts_daemon(*node);
    if (host) daemon_.pause();
    const Duration longest = random_.chance(150) ? scenario_.lease * 12 : scenario_.lease * 2;
    events_.after(random_.between(Duration{50ms}, longest), [this, agent, host] {
        if (host) daemon_.go_on();
        agent->go_on();
    });
}

void World::kill_guardian() {
    Node* const node = pick_alive();
    if (node != nullptr) node->agent()->guardian().killed();
}

void World::lose_power() {
    Node* const node = pick_alive();
    if (node == nullptr) return;
    chronicle_.count(Happening::host_power_lost);
    const HostIndex host = node->host;
    chronicle_.tell("host", host, " of ", node->name, " loses its power");
    network_.power_lost(host);
    for (Node& beside : nodes_) {
        if (beside.host != host) continue;
        beside.dark = true;
        for (const auto& agent : beside.agents) agent->power_lost();
        if (hosts_daemon(beside)) end_daemon();
    }
    events_.after(random_.between(Duration{500ms}, scenario_.lease * 4), [this, host] {
        network_.power_back(host);
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i].host != host) continue;
            nodes_[i].dark = false;
            if (scenario_.jobs[nodes_[i].job].agents_come_back) plan_start(i, 200ms);
        }
    });
}

void World::kill_daemon() {
    DaemonProcess& victim = pick_daemon();
    if (!victim.running()) return;
    if (scenario_.replicated) {
        victim.kill();
        // It may come back late, when another one has led for long.
        const auto away = random_.between(Duration{20ms}, random_.chance(300) ? Duration{20s} : Duration{4s});
        events_.after(away, [this, &victim] { start_daemon(victim); });
        return;
    }
    end_daemon();
    const Duration lost_timeout = Duration{1ms} * scenario_.jobs[0].terms.lost_timeout_ms;
    const Duration longest = random_.chance(150) ? lost_timeout * 3 / 2 : std::min<Duration>(lost_timeout / 2, 10s);
    events_.after(random_.between(Duration{20ms}, longest), [this] { start_daemon(); });
}

void World::pause_daemon() {
    DaemonProcess& victim = pick_daemon();
    if (!victim.running() || victim.paused()) return;
    victim.pause();
    const Duration longest = scenario_.replicated ? std::max<Duration>(6s, scenario_.lease * 2) : scenario_.lease * 2;
    events_.after(random_.between(Duration{50ms}, longest), [&victim] { victim.go_on(); });
}

void World::cut_from_etcd() {
    const HostIndex host = pick_daemon().address().host;
    if (!etcd_.cut_off.insert(host).second) return;
    chronicle_.count(Happening::daemon_cut_from_etcd);
    chronicle_.tell("host", host, " cannot reach etcd");
    events_.after(random_.between(Duration{100ms}, Duration{8s}), [this, host] { etcd_.cut_off.erase(host); });
}

/// Its members elect a leader of their own, and all leases begin anew.
void World::lose_etcd() {
    if (etcd_.is_away) return;
    chronicle_.count(Happening::etcd_away);
    chronicle_.tell("etcd is away");
    etcd_.is_away = true;
    events_.after(random_.between(Duration{100ms}, Duration{6s}), [this] {
        if (!std::exchange(etcd_.is_away, false)) return;
        etcd_.keys.prolong_leases(etcd_time(events_.now()));
        chronicle_.tell("etcd is back");
    });
}

// ---- people ----

void World::request_stop() {
    Node* const node = pick_alive();
    if (node == nullptr) return;
    node->dismissed = true;
    AgentProcess* const agent = node->agent();
    agent->request_stop(SIGTERM);
    const auto index = static_cast<std::size_t>(node - nodes_.data());
    if (random_.chance(300)) {
        events_.after(random_.between(Duration{10ms}, Duration{2s}), [agent] { agent->request_stop(SIGINT); });
    }
    demand_stopped(index, agent);
}

/// An operator takes a node out of its job, through that node's own agent.
void World::drain_node() {
    const Node* const node = pick_alive();
    if (node != nullptr) daemon().drain(node->agent()->incarnation(), node->agent()->node());
}

/// It begins as every agent does, with its first connection, and so is told apart from the one that is there. A boaster
/// comes with it.
void World::start_twin() {
    Node* const node = pick_alive();
    if (node == nullptr || node->odd || !invariants_.healthy(node->agent()->incarnation())) return;
    native::Hello hello;
    hello.job = scenario_.jobs[node->job].name;
    hello.node = {cat("host", node->host), next_pid_++, node->agent()->incarnation()};
    if (surroundings_.plant == Plant::welcomes_twin) hello.connection = 1000;
    auto join = supervisor_config(*node).join;
    twins_.push_back(std::make_unique<Twin>(surroundings_, node->host, daemon_address, hello, join));
    hello.node.incarnation = Twin::boaster(twins_.size());
    const auto boast = boast_of(join, twins_.size(), invariants_.agent(node->agent()->incarnation()).knows);
    twins_.push_back(std::make_unique<Twin>(surroundings_, node->host, daemon_address, hello, boast));
}

/// Each kind in turn. A join comes from a sick node, which is taken in and takes no place in a round; a resume from one
/// with other terms, which is held or refused.
native::Message World::boast_of(native::Join join, std::size_t number, Round known) {
    const auto kind = number / 2 % 4;
    const Round absurd = rendezvous::round_max, high = std::max(known, Round{0}) + rendezvous::round_lead_max / 2;
    join.last_round = kind % 2 == 0 ? absurd : high;
    if (kind < 2) {
        join.unhealthy = cat("boast: ", std::string(number, 'x'));
        return join;
    }
    join.terms.restarts_max += 1 + static_cast<std::uint32_t>(number);
    native::Resume resume;
    resume.round = resume.as_assigned.round = std::exchange(join.last_round, no_round);
    resume.as_joined = std::move(join);
    return resume;
}

}  // namespace muster::simulation
