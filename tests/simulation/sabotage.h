// Planted bugs: each invariant must be shown to catch one, else its being green proves nothing.
//
// A plant corrupts one decision of a real core on its way to the simulated world (or what the world reports back), as a
// bug in that core would. `simulation --plant NAME` runs with it; `--catch` demands that every plant is caught.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::simulation {

enum class Plant : std::uint8_t {
    none,
    reuses_round_number,   ///< the daemon gives every second round the number of the one before
    duplicate_rank,        ///< the second node is told rank 0 too
    seals_beyond_max,      ///< one node more than the maximum is let in
    skips_kill_of_tree,    ///< the guardian says the tree is empty without having looked
    loses_end,             ///< the guardian forgets to report some ends
    reports_end_twice,     ///< and here it reports each one twice
    keeps_old_connection,  ///< the daemon goes on talking to a connection that a newer one has replaced
    welcomes_twin,         ///< the daemon takes a second agent with the same incarnation for the first one
    floods,                ///< the daemon repeats what it says without end
    ignores_fencing,       ///< the agent does not hear that it is fenced, and its guardian is never hungry
    seals_too_early,       ///< the daemon's clock runs four times too fast: no fencing time
    ends_with_daemon,      ///< the agent kills its workers when the connection is gone
    acts_after_finish,     ///< the supervisor joins again after its end
    charges_twice,         ///< a failure costs two restarts
    uneven_restart_count,  ///< one node of a round is told another count
    charges_lost_node,     ///< every new round is charged
    never_rejoins,         ///< the agent does not join a second time
    deaf_to_stop,          ///< the agent does not hear the stop signal
    deaf_to_drain,         ///< the agent does not hear that it is to leave
    never_finishes,        ///< the launcher never exits
    succeeds_too_early,    ///< the agent says that its workers have exited 0 when they have just started
    ends_in_two_ways,      ///< the daemon tells some agents that the job failed and others that it succeeded
    garbles,               ///< the daemon's news of the gathering are of a kind that nobody knows
    runs_in_circles,       ///< the daemon's loop never sleeps
    tells_before_keeping,  ///< the daemon says what is not on its disk yet
    loses_last_writes,     ///< its disk said that they were there
    keeps_no_members,      ///< the daemon that goes on does not know the nodes of its round
    widens_window,         ///< a restart is held against the job for ever
    narrows_window,        ///< ... or hardly at all
    judges_nodes_hastily,  ///< a node is left out after its first failure
    believes_any_peer,     ///< the agent does not look at what proves a peer's answer
    takes_any_proof,       ///< the daemon does not look at what is said to prove that the secret is known
    speaks_without_lease,  ///< a leader whose lease is over goes on telling
    believes_boasters,     ///< a refused join moves the numbers of the rounds
    believes_too_much,     ///< one that is not refused, or a resume, moves them as far as it likes
    leaves_out_tls,        ///< agents and daemons with a key speak clear text
    loses_key,             ///< whoever answers in the daemon's place has the job's key
    repeats_secret,        ///< every round of a job has the secret of its first one
    splits_secret,         ///< the nodes of a round have different secrets
    ignores_findings,      ///< the daemon does not look at what a node's health check found
    never_trips,           ///< the breaker takes every finding for another one
    parks_for_others,      ///< a healthy node is parked for what another one found
    charges_parked,        ///< a parked node costs a restart
    hides_parked,          ///< nobody is told that a node is missing because it is parked
    never_heals,           ///< a sick node does not hear that its check passes again
    forgets_recovery,      ///< the daemon forgets the join of a parked node whose check passes again
    never_resets_breaker,  ///< from the second node on that reports something, all with it take part for ever
    takes_asked_for_held,  ///< the agent believes that a worker has left its round as soon as it was asked to
    holds_beyond_lease,    ///< the agent and its guardian keep held workers however long the rendezvous is silent
    never_releases,        ///< the guardian does not hear that held workers stay no longer
    count_,
};

struct PlantFacts {
    Plant plant;
    std::string_view name;
    std::string_view caught_by;  ///< the invariants that may catch it, separated by blanks
};

inline constexpr std::array<PlantFacts, static_cast<std::size_t>(Plant::count_)> plants = {{
    {Plant::none, "none", ""},
    {Plant::reuses_round_number, "reuses_round_number", "S1"},
    {Plant::duplicate_rank, "duplicate_rank", "S2"},
    {Plant::seals_beyond_max, "seals_beyond_max", "S3"},
    {Plant::skips_kill_of_tree, "skips_kill_of_tree", "S4 S8"},
    {Plant::loses_end, "loses_end", "S5 L1 L2 L3"},
    {Plant::reports_end_twice, "reports_end_twice", "S5"},
    {Plant::keeps_old_connection, "keeps_old_connection", "S6"},
    {Plant::welcomes_twin, "welcomes_twin", "S6 S9"},
    {Plant::floods, "floods", "S7"},
    {Plant::ignores_fencing, "ignores_fencing", "S8"},
    {Plant::seals_too_early, "seals_too_early", "S8"},
    {Plant::ends_with_daemon, "ends_with_daemon", "S9"},
    {Plant::acts_after_finish, "acts_after_finish", "finish"},
    {Plant::charges_twice, "charges_twice", "budget"},
    {Plant::uneven_restart_count, "uneven_restart_count", "budget"},
    {Plant::charges_lost_node, "charges_lost_node", "budget"},
    {Plant::never_rejoins, "never_rejoins", "L1"},
    {Plant::deaf_to_stop, "deaf_to_stop", "L2 L3"},
    {Plant::deaf_to_drain, "deaf_to_drain", "L2"},
    {Plant::never_finishes, "never_finishes", "L3"},
    {Plant::succeeds_too_early, "succeeds_too_early", "outcome"},
    {Plant::ends_in_two_ways, "ends_in_two_ways", "outcome"},
    {Plant::garbles, "garbles", "codec"},
    {Plant::runs_in_circles, "runs_in_circles", "limit"},
    {Plant::tells_before_keeping, "tells_before_keeping", "S1 S8 S9 budget outcome"},
    {Plant::loses_last_writes, "loses_last_writes", "S1 S8 S9 budget outcome"},
    {Plant::keeps_no_members, "keeps_no_members", "S1 S8 S9 outcome L1"},
    {Plant::widens_window, "widens_window", "budget"},
    {Plant::narrows_window, "narrows_window", "budget"},
    {Plant::judges_nodes_hastily, "judges_nodes_hastily", "left_out"},
    {Plant::believes_any_peer, "believes_any_peer", "S8"},
    {Plant::takes_any_proof, "takes_any_proof", "secret"},
    {Plant::speaks_without_lease, "speaks_without_lease", "reign"},
    {Plant::believes_boasters, "believes_boasters", "numbers"},
    {Plant::believes_too_much, "believes_too_much", "numbers"},
    {Plant::leaves_out_tls, "leaves_out_tls", "tls"},
    {Plant::loses_key, "loses_key", "tls"},
    {Plant::repeats_secret, "repeats_secret", "keys"},
    {Plant::splits_secret, "splits_secret", "keys"},
    {Plant::ignores_findings, "ignores_findings", "sick"},
    {Plant::never_trips, "never_trips", "breaker"},
    {Plant::parks_for_others, "parks_for_others", "parked"},
    {Plant::charges_parked, "charges_parked", "budget"},
    {Plant::hides_parked, "hides_parked", "short"},
    {Plant::never_heals, "never_heals", "healed"},
    {Plant::forgets_recovery, "forgets_recovery", "healed"},
    {Plant::never_resets_breaker, "never_resets_breaker", "sick"},
    {Plant::takes_asked_for_held, "takes_asked_for_held", "S4 S8"},
    {Plant::holds_beyond_lease, "holds_beyond_lease", "held S8"},
    {Plant::never_releases, "never_releases", "S4 L1 L2 L3 held"},
}};

inline std::optional<Plant> parse_plant(std::string_view name) {
    for (const auto& facts : plants) {
        if (facts.name == name) return facts.plant;
    }
    return std::nullopt;
}

}  // namespace muster::simulation
