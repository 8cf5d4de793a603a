// One node of one job, as the daemon knows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::rendezvous {

/// The state of a member. STATES.md has the table of events.
enum class Place {
    waiting,    ///< has joined and has no worker: gathered for the next round, or parked
    running,    ///< in the running round, its workers too
    succeeded,  ///< in the running round, its workers have all exited 0
    draining,   ///< its round has ended; it has not joined again yet
    lost,       ///< lost to its round; its workers may still run, so no round may be sealed yet
};

/// What the health check of a waiting node (Join::unhealthy) means for the next rounds (job_health.cpp).
enum class Health {
    fit,      ///< it found nothing
    parked,   ///< the node takes part in no round
    doubted,  ///< parked, and others go on with the same finding: the node takes part where the minimum needs it
    ignored,  ///< more nodes have this finding than may park for it: the node goes on
};

/// How a connection announced itself.
struct Arrival {
    ConnectionId connection = 0;
    std::string peer;          ///< numeric address of the other end
    NodeIdentity node;         ///< from its Hello
    std::uint32_t number = 1;  ///< how many connections this agent has opened
    std::vector<native::VersionFact> versions;
    bool proven = false;  ///< it has proved to know the secret
};

struct Member {
    NodeIdentity node;
    std::vector<native::VersionFact> versions;
    native::Join join;
    std::string peer;
    bool newly_started = true;  ///< came on its first connection, so it cannot know of a running round
    std::uint64_t arrival = 0;  ///< order of the first joins, for ranks and for who is parked
    std::uint32_t connection_number = 0;
    ConnectionId connection = 0;  ///< 0: none at the moment
    Place place = Place::waiting;
    Instant last_received;         ///< when it was last heard
    Instant judged_at;             ///< silent until then, it is lost; sooner after a close than after mere silence
    Round round = no_round;        ///< the last round it was assigned
    std::uint32_t group_rank = 0;  ///< in that round
    bool assignment_sent = false;  ///< of that round, on its connection
    std::int64_t rank_base = -1;   ///< in that round, of its first worker; -1: in none
    std::vector<native::SeenWorker> workers_seen{};  ///< what its agent last told of them, in that round, ...
    native::RankCounts ranks_seen{};                 ///< All of them by what they did, ...
    Instant stepped_at = Instant::min();             ///< when one did its last step, ...
    native::TierSteps checkpoints{};                 ///< the checkpoints that it knows, ...
    std::vector<native::GpuBusy> gpus{};             ///< how busy its GPUs are, ...
    Instant workers_seen_at;                         ///< ... and when
    bool workers_gone = false;  ///< it reported that the round's workers ended, so its loss cannot delay the next seal
    bool reported = false;      ///< its RoundReport has arrived
    std::uint32_t parked_at = 0;  ///< position among the spares, from 1; 0: not parked
    std::string record;           ///< as last written (job_record.h); empty: there is none
    /// the rounds, of the last node_failures_of, that ended through its own failure
    std::vector<Round> first_cause_of;
    /// It was put into a round by this daemon, by kept state, or by the agreement of a round's members
    /// (Job::note_claim). Its own word alone never makes it so.
    bool sealed = false;
    bool proven = false;    ///< its connection has proved to know the secret
    Duration stop_grace{};  ///< how long its workers may take to stop, as it said with its Resume; 0: it has not
    Instant doubt_ends = no_deadline;  ///< until then a seal waits for it although only its own word says it must
    bool excluded = false;             ///< excluded from the next rounds, because these are too many
    bool noticed = false;              ///< it received the last notice to all workers
    bool leaving = false;              ///< it was ordered to leave (muster drain) and takes part in no further round
    std::string leave_reason;
    bool stepping = false;    ///< In that round, all of its workers have reported a step.
    bool last_steps = false;  ///< `workers_seen` has the last ones of that round.
    std::string fault;        ///< muster fault was aimed at its agent: with what; it explains a loss until fault_until
    Instant fault_until;

    native::StandbysSeen standbys{};  ///< As its agent last told, up to 30 s ago.

    Health health = Health::fit;
    std::string finding{};  ///< finding_key() of what its check found, once asked for

    /// Takes part only where there would be too few nodes without it.
    [[nodiscard]] bool set_aside() const { return excluded || health == Health::doubted; }
    [[nodiscard]] bool connected() const { return connection != 0; }

    /// What was seen of the workers of a round before.
    void forget_seen() {
        workers_seen.clear();
        ranks_seen = {};
        checkpoints = {};
        gpus.clear();
        stepped_at = Instant::min();
    }
};

/// A held-back join: it may be a new start of a job whose earlier agents may still run.
struct HeldJoin {
    Arrival arrival;
    native::Join join;
    bool anew = false;  ///< it is one: another job under this name, or the next run of it
    /// It says that it has been in a round of the job, with other terms than those that wait (Job::hold_claim).
    bool claims = false;
    bool resumes = false;  ///< its workers run: it has to say so again
};

/// Hosts of nodes that were in a round and are gone: each is written with every change of the job.
inline constexpr std::size_t former_hosts_max = 100;

/// Rounds that a node ended by its own failure, kept beyond its agent, because a new agent does not repair the host.
struct NodePast {
    std::string host;
    std::vector<Round> first_cause_of;
    friend bool operator==(const NodePast&, const NodePast&) = default;
};

/// "gpu07 (pid 4711)": two agents may share a host.
std::string label(const NodeIdentity& node);

}  // namespace muster::rendezvous
