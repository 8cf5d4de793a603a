#include "tests/simulation/world.h"

#include <csignal>
#include <utility>

#include "tests/simulation/host/seeded_openssl.h"
#include "tests/simulation/job_secret.h"

namespace muster::simulation {

namespace {

constexpr std::uint64_t events_max = 3'000'000;  ///< a world that is still busy then runs in circles

}  // namespace

World::World(std::uint64_t seed, Plant plant, Chronicle::Mode mode)
    : chronicle_(events_, mode),
      random_(seed),
      scenario_(draw_scenario(random_)),
      invariants_(events_, chronicle_, scenario_.lease,
                  scenario_.temper.refuse_permille == 0 && scenario_.temper.lose_syn_permille == 0),
      network_(events_, chronicle_, random_.fork(), scenario_.temper),
      surroundings_{events_, chronicle_, network_, invariants_, plant},
      daemon_clock_{random_.between(Duration{0}, Duration{3600s}), 0},
      disk_(events_, Random(seed ^ 0xd15c), plant == Plant::tells_before_keeping ? 20s : scenario_.disk_slowest,
            scenario_.state_is_old),
      daemon_(surroundings_, random_.fork(), daemon_clock_, daemon_address) {
    chronicle_.tell("seed ", seed, ": ", story_of(scenario_));
    for (const JobScenario& job : scenario_.jobs) add_job(job);
    if (scenario_.replicated) add_replicas();
    if (scenario_.tls) {
        seed_openssl(seed);
        network_.leaves_out_tls = plant == Plant::leaves_out_tls;
        daemon_.serve_tls(tls_server(job_secret));
        for (const auto& replica : replicas_) replica->serve_tls(tls_server(job_secret));
    }
    if (!scenario_.embedded && !scenario_.replicated)
        events_.after(random_.between(Duration{0}, Duration{1s}), [this] { daemon_.start(daemon_config(), disk()); });
    plan_faults();
    events_.at(scenario_.faults_last, [this] { make_peace(); });
}

void World::add_job(const JobScenario& job) {
    const std::size_t index = invariants_.add_job(job.name, job.terms);
    for (std::size_t i = 0; i < job.nodes.size() + (job.odd_one_out ? 1 : 0); ++i) {
        Node node;
        node.job = index;
        node.odd = i == job.nodes.size();
        if (!node.odd) node.scenario = job.nodes[i];
        node.host = node.scenario.shares_host ? nodes_.back().host : static_cast<HostIndex>(nodes_.size() + 1);
        if (scenario_.embedded && nodes_.empty()) node.host = daemon_address.host;
        if (node.scenario.shares_host) chronicle_.count(Happening::host_shared);
        if (node.odd) node.scenario.joins_after = random_.between(Duration{4s}, Duration{10s});
        node.name = cat(job.name, "/n", i);
        node.clock = {random_.between(Duration{0}, Duration{3600s}),
                      random_.between(-scenario_.drift_ppm_max, scenario_.drift_ppm_max)};
        if (node.scenario.shares_host) node.clock = nodes_.back().clock;
        nodes_.push_back(std::move(node));
        if (job.health_interval > 0s && random_.chance(job.sick_permille)) fall_sick(nodes_.size() - 1, "hot");
        plan_start(nodes_.size() - 1, nodes_.back().scenario.joins_after);
        if (nodes_.back().scenario.joins_after > 4s) chronicle_.count(Happening::node_joined_late);
    }
}

void World::plan_start(std::size_t index, Duration after) {
    events_.after(after, [this, index] {
        const Node& node = nodes_[index];
        const bool first = node.agents.empty() && events_.now() < 2s;
        if (!first && !hosts_daemon(node) && !agents_may_start()) return plan_start(index, 100ms);
        const bool over = invariants_.job(node.job).ever_ended;
        if (!node.alive() && !node.dark && !node.dismissed && !over) start_agent(index);
    });
}

rendezvous::ClientKey World::client_key(const char* secret, const std::string& job) const {
    rendezvous::ClientKey key{.secret = hash_with(secret), .tls_identity = {}, .tls_key = {}};
    if (!scenario_.tls) return key;
    auto tls = tls_key(secret, job);
    key.tls_identity = std::move(tls.identity);
    key.tls_key = std::move(tls.key);
    return key;
}

rendezvous::ClientConfig World::client_config(const Node& node) {
    const JobScenario& job = scenario_.jobs[node.job];
    rendezvous::ClientConfig config;
    config.endpoint = {"host0", daemon_address.port};
    for (const auto& replica : replicas_)
        config.others.push_back({cat("host", replica->address().host), daemon_address.port});
    config.job = job.name;
    config.node = {cat("host", node.host), next_pid_++, 0x1000 + ++incarnation_count_};
    config.join_timeout = job.join_timeout;
    config.connect_timeout = std::min<Duration>(2s, scenario_.lease / 2);
    config.lease = Duration{1ms} * job.terms.lease_ms;
    config.lost_timeout = Duration{1ms} * job.terms.lost_timeout_ms;
    config.is_alone = hosts_daemon(node) && job.terms.nodes_max == 1 && replicas_.empty();
    config.stop_grace = job.grace;
    config.fan_out = scenario_.fan_out;
    if (scenario_.secret && !(node.odd && incarnation_count_ % 2 == 0)) {
        config.key = client_key(node.odd ? other_secret : job_secret, job.name);
        // The key is being changed, and the daemons do not know it yet.
        if (!node.odd && incarnation_count_ % 3 == 0)
            config.older_keys = {std::exchange(config.key, client_key(other_secret, job.name))};
        config.secret_seed = cat(incarnation_count_);
        config.peers_hash = peers_hash;
    }
    return config;
}

agent::SupervisorConfig World::supervisor_config(const Node& node) const {
    const JobScenario& job = scenario_.jobs[node.job];
    agent::SupervisorConfig config;
    config.host = cat("host", node.host);
    config.grace = job.grace;
    config.join.terms = job.terms;
    if (node.odd && !scenario_.secret) ++config.join.terms.restarts_max;
    config.join.slots = node.scenario.slots;
    config.join.role = node.scenario.role;
    config.join.node_rank = node.scenario.node_rank;
    config.join.addresses = {config.host};
    config.join.entry = "train.py";
    using SickNode = agent::SupervisorConfig::SickNode;  // as launcher/node/agent_config.cpp has it
    config.checks_health = job.health_interval > 0s && !node.odd;
    config.health_interval = job.health_interval;
    config.sick_node = job.terms.nodes_max + job.terms.spares == 1 ? SickNode::leaves
                       : hosts_daemon(node)                        ? SickNode::joins
                                                                   : SickNode::parks;
    const auto number = static_cast<std::uint64_t>(&node - nodes_.data());
    config.join.arguments = job.numbered ? cat("--node=", number) : "";
    config.join.arguments_hash = job.numbered ? number + 2 : 1;
    config.join.hosts_endpoint = hosts_daemon(node);
    return config;
}

void World::start_agent(std::size_t index) {
    Node& node = nodes_[index];
    // An agent with other terms sets them if it comes before the job has ever run.
    if (node.odd && (!invariants_.job(node.job).last_sealed || peace_)) return;
    if (node.odd && !scenario_.secret) chronicle_.count(Happening::terms_differed);
    if (!node.agents.empty()) chronicle_.count(Happening::agent_restarted);
    if (hosts_daemon(node)) start_daemon();
    AgentProcess::Setting setting;
    setting.name = cat(node.name, '#', node.agents.size());
    setting.host = node.host;
    setting.clock = &nodes_[index].clock;
    setting.daemons = {daemon_address};
    for (const auto& replica : replicas_) setting.daemons.push_back(replica->address());
    setting.client = client_config(node);
    setting.supervisor = supervisor_config(node);
    setting.port_first =
        static_cast<std::uint16_t>((node.scenario.shares_host ? 40000 : 30000) + node.agents.size() % 100 * 100);
    setting.script = [this, job = node.job](Round, std::uint32_t) { return draw_script(job); };
    setting.next_pid = [this] { return next_pid_++; };
    setting.worker_failed = [this, job = node.job](Round round) { worker_failed(job, round); };
    setting.drained = [this, index] { demand_stopped(index, nodes_[index].agent()); };
    setting.check = [this, index] { return check_health(nodes_[index]); };
    setting.check_takes = [this] {
        return !peace_ && random_.chance(50) ? Duration{2s} : random_.between(Duration{1ms}, Duration{300ms});
    };
    setting.finished = [this, index] {
        demand_reason(nodes_[index]);
        if (hosts_daemon(nodes_[index])) host_finished();
    };
    AgentTruth truth;
    truth.job = node.job;
    truth.name = setting.name;
    truth.host = node.host;
    truth.slots = node.scenario.slots;
    truth.restarts_max = setting.supervisor.join.terms.restarts_max;
    truth.role = node.scenario.role;
    truth.hosts = hosts_daemon(node);
    truth.stranger = node.odd && scenario_.secret;
    const auto& job = scenario_.jobs[node.job];
    const bool fixed_size = job.terms.nodes_min == job.terms.nodes_max && job.terms.spares == 0;
    truth.may_be_surplus = job.numbered && fixed_size;
    truth.in_trouble = trouble_count_[node.host] > 0;
    invariants_.newcomer(setting.client.node.incarnation, std::move(truth));
    node.agents.push_back(std::make_unique<AgentProcess>(surroundings_, random_.fork(), std::move(setting)));
    node.agent()->begin();
}

WorkerScript World::draw_script(std::size_t index) {
    const JobScenario& job = scenario_.jobs[index];
    WorkerScript script;
    script.lives = job.endless ? never : job.work + random_.between(Duration{0}, Duration{50ms});
    script.end = Exited{0};
    script.stops_within = random_.between(Duration{0}, job.grace * 3 / 2);
    script.ignores_sigterm = random_.chance(job.ignore_permille);
    script.leaves_grandchild = random_.chance(job.grandchild_permille);
    script.leaves_group = random_.chance(job.grandchild_permille);
    if (job.keep_permille > 0 && random_.chance(job.keep_permille)) {
        script.leaves_round_within = random_.chance(900) ? random_.between(Duration{100us}, Duration{200ms})
                                                         : random_.between(Duration{4s}, Duration{8s});
        if (random_.chance(50)) script.lives_held = random_.between(Duration{1ms}, Duration{3s});
    }
    if (peace_) return script;
    script.starts = !random_.chance(job.not_start_permille);
    if (random_.chance(job.fail_permille)) {
        script.lives = random_.between(Duration{1ms}, std::min<Duration>(job.work, 10s));
        script.end = random_.chance(400) ? WorkerEnd{Signaled{.signal = SIGSEGV, .core_dumped = true}}
                                         : WorkerEnd{Exited{static_cast<std::int32_t>(random_.between(1, 100))}};
    }
    return script;
}

/// The others of the round may see that their peer is gone, and fail too.
void World::worker_failed(std::size_t job, Round round) {
    for (Node& node : nodes_) {
        if (node.job != job || !node.alive() || !random_.chance(scenario_.jobs[job].victim_permille)) continue;
        node.agent()->guardian().peer_vanished(round, random_.between(Duration{1ms}, Duration{400ms}));
    }
}

WorldResult World::run() {
    while (!chronicle_.violation() && !over() && events_.run_one()) {
        invariants_.check();
        if (events_.done_count() > events_max) chronicle_.violated("limit", "the world runs in circles");
    }
    return {chronicle_.violation(), chronicle_.tally(), events_.done_count(), events_.now()};
}

}  // namespace muster::simulation
