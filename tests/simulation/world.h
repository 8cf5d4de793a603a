// One simulated world, from one seed to its end: first faults, then peace, in which it has to come right.
//
// What it takes for granted, because no protocol could do without:
//   - clocks differ by their offsets and drift by 0.2 % at most;
//   - a daemon without state that is killed forgets everything, and learns it again from its agents within the lease in
//   which it
//     seals nothing. It cannot know of members that cannot reach it. So when it is killed partitions, stalls and
//     refused connects end, and none begins until that lease is over. Resets, and all that befalls processes, go on;
//   - an embedded daemon does not wait for that lease where a full set of fresh agents comes (STATES.md, Sealing), so
//     in its worlds no other node's agent is started in that time either;
//   - several daemons share their state in one etcd, which may be away, slow, or out of reach for one of them, and
//   loses
//     nothing; its own hosts are none of the world's;
//   - a guardian runs as long as its host does, or is killed: it is never stopped for longer than moments.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/processes/daemon_process.h"
#include "tests/simulation/processes/impostor.h"
#include "tests/simulation/processes/twin.h"
#include "tests/simulation/scenario.h"

namespace muster::simulation {

inline constexpr Address daemon_address{0, 29400};
inline constexpr Duration end_linger = 10s;  ///< ServerConfig::end_linger, for which a launcher keeps its daemon

struct WorldResult {
    std::optional<Violation> violation;
    Tally tally{};
    std::uint64_t event_count = 0;
    Moment lasted{};
};

class World {
  public:
    World(std::uint64_t seed, Plant plant, Chronicle::Mode mode);
    WorldResult run();

  private:
    struct Node {
        std::size_t job = 0;
        HostIndex host = 0;
        NodeScenario scenario;
        std::string name;
        HostClock clock;
        bool dark = false;                                  ///< its host has no power
        bool dismissed = false;                             ///< somebody told it to stop: nobody starts it again
        std::string finding{};                              ///< of its health check; empty: nothing
        bool lasting = false;                               ///< that outlasts the faults
        std::uint32_t sickness = 0;                         ///< how often it fell sick
        bool odd = false;                                   ///< comes with other terms than the rest
        std::vector<std::unique_ptr<AgentProcess>> agents;  ///< one after another; all are kept, events refer to them
        [[nodiscard]] AgentProcess* agent() const { return agents.empty() ? nullptr : agents.back().get(); }
        [[nodiscard]] bool alive() const { return agent() != nullptr && agent()->alive(); }
    };

    // -- building (world.cpp) --
    void add_job(const JobScenario& job);
    void start_agent(std::size_t node);
    void plan_start(std::size_t node, Duration after);
    WorkerScript draw_script(std::size_t job);
    void worker_failed(std::size_t job, Round round);
    [[nodiscard]] rendezvous::ClientKey client_key(const char* secret, const std::string& job) const;
    [[nodiscard]] rendezvous::ClientConfig client_config(const Node& node);
    [[nodiscard]] agent::SupervisorConfig supervisor_config(const Node& node) const;

    // -- the daemon's life (world_daemon.cpp) --
    [[nodiscard]] bool hosts_daemon(const Node& node) const { return scenario_.embedded && &node == nodes_.data(); }
    [[nodiscard]] rendezvous::ServerConfig daemon_config() const;
    [[nodiscard]] bool agents_may_start() const;
    void start_daemon(DaemonProcess& daemon);
    void add_replicas();
    /// The one that leads, else the first that runs, else the first.
    [[nodiscard]] DaemonProcess& daemon();
    [[nodiscard]] DaemonProcess& pick_daemon();
    [[nodiscard]] bool any_daemon_runs() const;
    [[nodiscard]] HostIndex last_host() const { return static_cast<HostIndex>(nodes_.size() + replicas_.size()); }
    [[nodiscard]] Disk* disk() { return scenario_.keeps_state ? &disk_ : nullptr; }
    void start_daemon();
    void end_daemon();
    void host_finished();

    // -- faults (world_faults.cpp) --
    void plan_faults();
    void plan_fault(Duration mean, void (World::*fault)());
    void reset_connection();
    void stall_connection();
    void partition();
    void cut(HostIndex from, HostIndex to, Duration duration);
    void tamper();
    void kill_agent();
    void stop_agent();
    void kill_guardian();
    void lose_power();
    void kill_daemon();
    void pause_daemon();
    void cut_from_etcd();
    void lose_etcd();
    void request_stop();
    void drain_node();
    void start_twin();
    static native::Message boast_of(native::Join join, std::size_t number, Round known);
    Node* pick_alive();
    void mark_host(HostIndex host);
    void set_trouble(HostIndex host, bool in_trouble);
    [[nodiscard]] bool network_faults_allowed() const;

    // -- health checks (world_health.cpp) --
    void fall_sick(std::size_t node, std::string finding);
    void make_sick();
    void break_check(std::size_t job);
    [[nodiscard]] agent::HealthChecked check_health(const Node& node);
    void heal_all();
    [[nodiscard]] std::uint32_t fit_nodes(std::size_t job);
    void demand_healed();
    void demand_reason(const Node& node);

    // -- peace (world_peace.cpp) --
    void make_peace();
    void demand_running();
    void demand_stopped(std::size_t node, AgentProcess* agent);
    void demand_end();
    void stop_endless();
    [[nodiscard]] Duration settle_limit(const JobScenario& job) const;
    [[nodiscard]] bool over() const;

    EventQueue events_;
    Chronicle chronicle_;
    Random random_;
    Scenario scenario_;
    Invariants invariants_;
    Network network_;
    Surroundings surroundings_;
    HostClock daemon_clock_;
    Disk disk_;
    SharedEtcd etcd_;
    DaemonProcess daemon_;
    std::vector<std::unique_ptr<HostClock>> replica_clocks_;
    std::vector<std::unique_ptr<DaemonProcess>> replicas_;  ///< further daemons, on hosts behind the nodes'
    std::vector<Node> nodes_;
    std::vector<std::unique_ptr<Twin>> twins_;
    std::vector<std::unique_ptr<Impostor>> impostors_;
    bool peace_ = false;
    Moment settled_at_ = never;  ///< from then on what is promised for peace is demanded
    Moment calm_until_{};        ///< no partition and no stall before: a daemon without memory is learning
    std::uint64_t incarnation_count_ = 0;
    std::int32_t next_pid_ = 1000;
    std::map<HostIndex, int> trouble_count_;
};

}  // namespace muster::simulation
