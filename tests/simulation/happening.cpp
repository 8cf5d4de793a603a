#include "tests/simulation/happening.h"

namespace muster::simulation {

std::string_view name(Happening happening) {
    static constexpr std::array<std::string_view, happening_count> names = {"chunks_split",
                                                                            "connection_reset",
                                                                            "connection_stalled",
                                                                            "connect_refused",
                                                                            "connect_timed_out",
                                                                            "partition_one_way",
                                                                            "partition_two_way",
                                                                            "half_open_peer",
                                                                            "reconnect_overtook",
                                                                            "agent_killed",
                                                                            "agent_stopped",
                                                                            "agent_restarted",
                                                                            "guardian_killed",
                                                                            "host_power_lost",
                                                                            "host_shared",
                                                                            "daemon_killed",
                                                                            "daemon_restarted",
                                                                            "daemon_paused",
                                                                            "daemon_lost_with_host",
                                                                            "daemon_left_with_host",
                                                                            "worker_not_started",
                                                                            "worker_exited_nonzero",
                                                                            "worker_died_by_signal",
                                                                            "worker_ignored_sigterm",
                                                                            "worker_left_grandchild",
                                                                            "group_signalled",
                                                                            "stop_requested",
                                                                            "stop_requested_twice",
                                                                            "node_joined_late",
                                                                            "terms_differed",
                                                                            "twin_refused",
                                                                            "node_drained",
                                                                            "round_sealed",
                                                                            "round_restarted",
                                                                            "spare_parked",
                                                                            "spare_took_over",
                                                                            "peer_asked",
                                                                            "agent_fenced",
                                                                            "guardian_killed_unfed",
                                                                            "agent_died_reported",
                                                                            "budget_spent",
                                                                            "job_succeeded",
                                                                            "job_failed",
                                                                            "daemon_taught_anew",
                                                                            "rendezvous_lost"};
    return names[static_cast<std::size_t>(happening)];
}

}  // namespace muster::simulation
