#include "tests/simulation/scenario.h"

#include <algorithm>

#include "rendezvous/base/text/text.h"

namespace muster::simulation {

namespace {

std::uint32_t small(Random& random, std::int64_t low, std::int64_t high) {
    return static_cast<std::uint32_t>(random.between(low, high));
}

std::uint32_t milliseconds(Duration duration) {
    return static_cast<std::uint32_t>(duration / 1ms);
}

/// Swarm testing: each world knows only some of the faults, so that rare combinations are not drowned by common ones.
Duration mean_or_never(Random& random, std::uint32_t permille, Duration low, Duration high) {
    const Duration mean = random.between(low, high);
    return random.chance(permille) ? mean : never;
}

native::JobTerms draw_terms(Random& random, Duration lease) {
    native::JobTerms terms;
    terms.nodes_max = small(random, 1, random.chance(200) ? 6 : 4);
    terms.fixed_world = random.chance(150);
    terms.nodes_min = terms.fixed_world ? terms.nodes_max : small(random, 1, terms.nodes_max);
    terms.spares = terms.fixed_world || random.chance(600) ? 0 : small(random, 1, 2);
    terms.restarts_max = random.chance(200) ? 0 : small(random, 1, 5);
    terms.last_call_ms = milliseconds(random.between(Duration{200ms}, Duration{4s}));
    terms.lease_ms = milliseconds(lease);
    terms.lost_timeout_ms = milliseconds(random.between(lease * 3, lease * 10));
    return terms;
}

void draw_budgets(Random& random, native::JobTerms& terms) {
    terms.restart_early_failures = random.chance(500);
    if (terms.restarts_max > 0 && random.chance(300)) {
        terms.restarts_window_ms = milliseconds(random.between(Duration{3s}, Duration{30s}));
    }
    if (random.chance(400)) {
        terms.node_failures_max = small(random, 1, 2);
        terms.node_failures_of = terms.node_failures_max + small(random, 0, 3);
    }
}

void draw_nodes(Random& random, JobScenario& job) {
    const std::uint32_t surplus = job.terms.fixed_world || random.chance(500) ? 0 : small(random, 0, 2);
    const bool ranked = job.terms.fixed_world || random.chance(150);
    const bool late = random.chance(300);
    const std::uint32_t sharing_permille = random.chance(250) ? 500 : 0;
    for (std::uint32_t i = 0; i < job.terms.nodes_max + surplus; ++i) {
        NodeScenario node;
        node.slots = small(random, 1, 3);
        if (random.chance(200)) node.role = "reader";
        if (ranked) node.node_rank = static_cast<std::int32_t>(i);
        node.joins_after = random.between(Duration{0}, Duration{500ms});
        if (late && i + 1 == job.terms.nodes_max + surplus) {
            node.joins_after = random.between(Duration{5s}, Duration{20s});
        }
        node.shares_host = i > 0 && !job.nodes.back().shares_host && random.chance(sharing_permille);
        job.nodes.push_back(node);
    }
}

JobScenario draw_job(Random& random, std::size_t index, Duration lease) {
    JobScenario job;
    job.name = cat("job", index);
    job.terms = draw_terms(random, lease);
    draw_nodes(random, job);
    job.terms.fixed_world = job.terms.fixed_world && index == 0;  // a daemon serves one such job
    job.grace = random.between(Duration{500ms}, Duration{3s});
    job.join_timeout = random.between(Duration{40s}, Duration{80s});
    job.work = random.between(Duration{2s}, Duration{30s});
    job.endless = random.chance(250);
    if (random.chance(600)) job.fail_permille = small(random, 20, 300);
    if (random.chance(150)) job.not_start_permille = small(random, 10, 100);
    if (random.chance(500)) job.victim_permille = small(random, 100, 900);
    if (random.chance(300)) job.ignore_permille = small(random, 50, 400);
    if (random.chance(300)) job.grandchild_permille = small(random, 50, 500);
    job.odd_one_out = random.chance(50);
    job.agents_come_back = random.chance(800);
    return job;
}

FaultScenario draw_faults(Random& random) {
    FaultScenario faults;
    if (random.chance(100)) return faults;  // a world without faults must work too
    faults.reset = mean_or_never(random, 350, 2s, 20s);
    faults.stall = mean_or_never(random, 250, 3s, 20s);
    faults.partition = mean_or_never(random, 350, 5s, 30s);
    faults.agent_kill = mean_or_never(random, 350, 5s, 30s);
    faults.agent_stop = mean_or_never(random, 300, 4s, 25s);
    faults.guardian_kill = mean_or_never(random, 100, 10s, 40s);
    faults.power_loss = mean_or_never(random, 200, 10s, 40s);
    faults.daemon_kill = mean_or_never(random, 350, 6s, 40s);
    faults.daemon_pause = mean_or_never(random, 200, 4s, 30s);
    faults.stop_request = mean_or_never(random, 100, 10s, 60s);
    if (faults.daemon_kill == never) faults.twin = mean_or_never(random, 200, 3s, 20s);
    return faults;
}

NetworkTemper draw_temper(Random& random, Duration lease) {
    NetworkTemper temper;
    temper.latency_min = 20us;
    temper.latency_max = random.chance(200) ? lease / 100 : std::min<Duration>(3ms, lease / 500);
    temper.split_permille = random.chance(500) ? 0 : small(random, 10, 400);
    if (random.chance(150)) temper.refuse_permille = small(random, 10, 300);
    if (random.chance(150)) temper.lose_syn_permille = small(random, 10, 200);
    if (random.chance(500)) temper.user_timeout = lease;
    return temper;
}

/// Of 40 nodes and more, two may park for one finding.
void make_crowd(Random& random, JobScenario& job) {
    job.terms.nodes_max = small(random, 40, 48);
    job.terms.nodes_min = small(random, 1, job.terms.nodes_max);
    job.terms.spares = 0;
    job.terms.fixed_world = false;
    job.nodes.clear();
    for (std::uint32_t i = 0; i < job.terms.nodes_max; ++i)
        job.nodes.push_back({.joins_after = random.between(Duration{0}, Duration{500ms})});
}

void draw_sickness(Random& random, Scenario& scenario) {
    if (scenario.faults.twin != never || !random.chance(350)) return;
    scenario.faults.sickness = random.between(Duration{2s}, Duration{15s});
    if (random.chance(30)) make_crowd(random, scenario.jobs.back());
    for (auto& job : scenario.jobs) {
        job.health_interval = random.between(Duration{300ms}, Duration{4s});
        job.sick_permille = random.chance(600) ? small(random, 50, 600) : 0;
        job.broken_permille = random.chance(400) ? small(random, 100, 600) : 0;
        job.lasting_permille = random.chance(500) ? small(random, 200, 1000) : 0;
    }
}

/// The members of a round agree in time where a way through their tree takes 0.01 lease (rendezvous/STATES.md).
void limit_latency(Scenario& scenario) {
    for (const auto& job : scenario.jobs) {
        const native::TreePlace tree{.size = job.terms.nodes_max, .fan_out = scenario.fan_out};
        const auto depth = std::max<std::uint32_t>(tree.depth(), 1);
        scenario.temper.latency_max = std::min<Duration>(scenario.temper.latency_max, scenario.lease / 100 / depth);
    }
}

std::string mean(std::string_view what, Duration value) {
    return value == never ? std::string{} : cat(' ', what, " every ", describe(value), ',');
}

}  // namespace

Scenario draw_scenario(Random& random) {
    Scenario scenario;
    scenario.lease = random.between(Duration{1s}, Duration{4s});
    const std::size_t job_count = random.chance(150) ? 2 : 1;
    for (std::size_t i = 0; i < job_count; ++i) scenario.jobs.push_back(draw_job(random, i, scenario.lease));
    scenario.faults = draw_faults(random);
    scenario.temper = draw_temper(random, scenario.lease);
    scenario.embedded = job_count == 1 && random.chance(200);
    // It has no life of its own then; and when it is gone, so is the memory that tells an agent from its twin.
    if (scenario.embedded) scenario.faults.daemon_kill = scenario.faults.daemon_pause = scenario.faults.twin = never;
    scenario.faults_last = random.between(Duration{10s}, Duration{60s});
    scenario.drift_ppm_max = random.chance(300) ? 2000 : 100;
    // Drawn aside, so that a seed without it is the world that it was before there was this fault. A twin would make it
    // unclear which of the two is meant.
    Random aside = random;
    if (scenario.faults.twin == never) scenario.faults.drain = mean_or_never(aside, 80, 8s, 60s);
    scenario.keeps_state = scenario.faults.daemon_kill != never && aside.chance(500);
    scenario.state_is_old = aside.chance(500);
    scenario.disk_slowest = aside.chance(300) ? aside.between(Duration{1ms}, Duration{400ms}) : Duration{5ms};
    for (auto& job : scenario.jobs) draw_budgets(aside, job.terms);
    scenario.replicated = scenario.keeps_state && aside.chance(500);
    if (scenario.replicated) {
        scenario.faults.etcd_cut = mean_or_never(aside, 400, 5s, 30s);
        scenario.faults.etcd_away = mean_or_never(aside, 250, 10s, 40s);
    }
    // A copy of a machine knows the secret too, so that twins tell nothing of it.
    scenario.secret = aside.chance(200);
    if (scenario.secret) scenario.faults.twin = never;
    if (scenario.secret && aside.chance(500)) scenario.jobs.back().odd_one_out = true;
    for (auto& job : scenario.jobs) job.numbered = aside.chance(300);
    // Small rounds are deep trees where members have few children.
    if (aside.chance(500)) scenario.fan_out = small(aside, 1, 2);
    if (aside.chance(500)) scenario.heartbeats_per_second = small(aside, 10, 60);
    draw_sickness(aside, scenario);
    for (auto& job : scenario.jobs)
        if (aside.chance(300)) job.keep_permille = small(aside, 300, 1000);
    scenario.tls = scenario.secret && aside.chance(600);
    if (scenario.tls) scenario.faults.tampering = mean_or_never(aside, 850, 1s, 10s);
    limit_latency(scenario);
    return scenario;
}

std::string story_of(const Scenario& scenario) {
    std::string out = cat(scenario.embedded     ? "embedded daemon, "
                          : scenario.replicated ? "three daemons, "
                                                : "",
                          scenario.keeps_state ? "state kept, " : "",
                          scenario.tls      ? "with TLS, "
                          : scenario.secret ? "with a secret, "
                                            : "",
                          "lease ", describe(scenario.lease), ", fan-out ", scenario.fan_out,
                          scenario.heartbeats_per_second == native::heartbeats_per_second
                              ? std::string()
                              : cat(", heartbeats ", scenario.heartbeats_per_second, "/s"),
                          ", faults for ", describe(scenario.faults_last), ';');
    const FaultScenario& faults = scenario.faults;
    out += cat(mean("reset", faults.reset), mean("stall", faults.stall), mean("partition", faults.partition),
               mean("tampering", faults.tampering), mean("agent kill", faults.agent_kill),
               mean("agent stop", faults.agent_stop), mean("guardian kill", faults.guardian_kill),
               mean("power loss", faults.power_loss), mean("daemon kill", faults.daemon_kill),
               mean("daemon pause", faults.daemon_pause), mean("stop request", faults.stop_request),
               mean("drain", faults.drain), mean("twin", faults.twin), mean("daemon cut from etcd", faults.etcd_cut),
               mean("etcd away", faults.etcd_away), mean("sickness", faults.sickness));
    for (const JobScenario& job : scenario.jobs) {
        const native::JobTerms& terms = job.terms;
        out += cat(
            "\n  ", job.name, ": ", terms.nodes_min, ':', terms.nodes_max, " nodes of ", job.nodes.size(), ", spares ",
            terms.spares, ", restarts ", terms.restarts_max, ", last call ", terms.last_call_ms, " ms, lost time-out ",
            terms.lost_timeout_ms, " ms, work ", describe(job.work),
            terms.restarts_window_ms > 0 ? cat(" within ", terms.restarts_window_ms, " ms") : "",
            terms.node_failures_max > 0 ? cat(", node failures ", terms.node_failures_max, '/', terms.node_failures_of)
                                        : "",
            terms.restart_early_failures ? ", early ones restarted" : "", job.numbered ? ", arguments differ" : "",
            job.health_interval > 0s ? cat(", sick nodes checked every ", describe(job.health_interval)) : "",
            terms.fixed_world ? ", fixed world" : "", job.endless ? ", endless" : "",
            job.keep_permille > 0 ? cat(", kept ", job.keep_permille) : "");
    }
    return out;
}

}  // namespace muster::simulation
