// What one seed stands for: how large the world is, what its jobs want, and which faults may befall it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/wire/native/heartbeat_pace.h"
#include "rendezvous/wire/native/messages.h"
#include "tests/simulation/host/network.h"
#include "tests/simulation/host/random.h"

namespace muster::simulation {

struct NodeScenario {
    std::uint32_t slots = 1;
    std::string role = "default";
    std::int32_t node_rank = -1;
    Duration joins_after{};
    bool shares_host = false;  ///< runs beside the node before it
};

struct JobScenario {
    std::string name;
    native::JobTerms terms;
    std::vector<NodeScenario> nodes;
    Duration grace{};
    Duration join_timeout{};
    Duration work{};                  ///< how long a round's workers must run undisturbed to be done
    bool endless = false;             ///< its workers never end by themselves: it has to be stopped
    std::uint32_t fail_permille = 0;  ///< workers that fail before they are done
    std::uint32_t not_start_permille = 0;
    std::uint32_t victim_permille = 0;  ///< workers that exit when another one of their round has failed
    std::uint32_t ignore_permille = 0;  ///< workers that ignore SIGTERM
    std::uint32_t grandchild_permille = 0;
    std::uint32_t keep_permille = 0;     ///< workers that can leave their round in place
    Duration health_interval{};          ///< between the checks of a sick node; 0: its nodes are not checked
    std::uint32_t sick_permille = 0;     ///< nodes that are sick when they start
    std::uint32_t broken_permille = 0;   ///< of what befalls a node: the check itself breaks, on all nodes
    std::uint32_t lasting_permille = 0;  ///< of the same: it outlasts the faults
    bool numbered = false;               ///< its script takes the node's number, so the arguments of all nodes differ
    bool odd_one_out = false;            ///< an agent with other terms comes along
    bool agents_come_back = true;        ///< somebody starts a new agent where one was killed
};

/// Mean times between faults of a kind; never: that kind does not happen in this world.
struct FaultScenario {
    Duration reset = never;
    Duration stall = never;
    Duration partition = never;
    Duration tampering = never;  ///< by a man in the middle; only where there is TLS
    Duration agent_kill = never;
    Duration agent_stop = never;
    Duration guardian_kill = never;
    Duration power_loss = never;
    Duration daemon_kill = never;
    Duration daemon_pause = never;
    Duration stop_request = never;
    Duration drain = never;
    Duration etcd_cut = never;   ///< one daemon cannot reach etcd
    Duration etcd_away = never;  ///< nobody can
    Duration sickness = never;   ///< a health check finds something; not where there are twins, who find nothing
    Duration twin = never;  ///< only where the daemon lives: one that remembers nothing cannot tell who is the copy
};

struct Scenario {
    std::vector<JobScenario> jobs;
    FaultScenario faults;
    NetworkTemper temper;
    Duration faults_last{};  ///< then they stop, and liveness is demanded
    std::int64_t drift_ppm_max = 0;
    Duration lease{};
    bool keeps_state = false;   ///< the daemon goes on from its state when it is started again
    bool state_is_old = false;  ///< the first daemon finds the (empty) state of one before it
    Duration disk_slowest{};    ///< what a transaction takes at most
    bool replicated = false;    ///< three daemons keep their state in one etcd, and one leads
    bool tls = false;           ///< between agents and daemons; only with a secret
    bool secret = false;        ///< of its jobs: an odd one out lacks it, or has another one
    /// Of the tree of a round's members; and of a job: with few, its pace is slow.
    std::uint32_t fan_out = native::tree_fan_out;
    std::uint32_t heartbeats_per_second = native::heartbeats_per_second;
    bool embedded = false;  ///< the daemon is part of the first node's launcher, and ends with it
};

Scenario draw_scenario(Random& random);

/// One line for the story.
std::string story_of(const Scenario& scenario);

}  // namespace muster::simulation
