// Everything that a set of runs must have gone through: the faults that the simulator brings about, and the marks that
// show that the interesting answers to them were taken. Each is counted; one that never happened fails the set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::simulation {

enum class Happening : std::uint8_t {
    // -- faults of the network --
    chunks_split,
    connection_reset,
    connection_stalled,
    connect_refused,
    connect_timed_out,
    partition_one_way,
    partition_two_way,
    half_open_peer,
    tls_tampered,  ///< after the handshake
    tls_handshake_tampered,
    tls_impersonated,
    tls_failed,
    reconnect_overtook,
    // -- faults of processes and hosts --
    agent_killed,
    agent_stopped,
    agent_restarted,
    guardian_killed,
    host_power_lost,
    host_shared,
    daemon_killed,
    daemon_restarted,
    daemon_paused,
    daemon_cut_from_etcd,
    etcd_away,
    daemon_lost_with_host,
    daemon_left_with_host,
    // -- faults of workers --
    worker_not_started,
    worker_exited_nonzero,
    worker_died_by_signal,
    worker_ignored_sigterm,
    worker_left_grandchild,
    group_signalled,
    worker_held,
    worker_resumed,
    held_workers_fenced,
    // -- health checks --
    node_fell_sick,
    check_broke,
    // -- people --
    stop_requested,
    stop_requested_twice,
    node_joined_late,
    terms_differed,
    stranger_refused,
    surplus_refused,
    twin_refused,
    boaster_refused,
    peer_forged,
    node_drained,
    // -- marks: what the faults led to --
    round_sealed,
    round_restarted,
    spare_parked,
    spare_took_over,
    node_left_out,
    sick_node_parked,
    sick_node_went_on,
    sick_node_came_back,
    sick_job_ended,
    peer_asked,
    parent_stepped_over,
    agent_fenced,
    guardian_killed_unfed,
    agent_died_reported,
    budget_spent,
    window_spent,
    charge_got_old,
    early_failure,
    job_succeeded,
    job_failed,
    daemon_taught_anew,
    daemon_went_on_from_state,
    daemon_took_over,
    rendezvous_lost,
    count_,
};

inline constexpr std::size_t happening_count = static_cast<std::size_t>(Happening::count_);

/// The enumerator's own name.
std::string_view name(Happening happening);

/// How often each happened.
using Tally = std::array<std::uint64_t, happening_count>;

}  // namespace muster::simulation
