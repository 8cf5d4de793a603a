// The daemon's decisions for all of its jobs, pure: connections and messages in, actions out.
//
// One `Server` serves many jobs. It identifies connections by number; the driver (dialects/) decodes whole messages
// first. The phase of a job changes only in Job::settle (job.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/base/time_histogram.h"
#include "rendezvous/events/event.h"
#include "rendezvous/rounds/job_summary.h"
#include "rendezvous/wire/native/heartbeat_pace.h"
#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// Numbers a connection of the driver; never reused.
using ConnectionId = std::uint64_t;

/// Whether a started daemon waits one lease before it seals, so that the members of a running round can reconnect.
enum class StartHold {
    none,        ///< nothing can have run before
    until_full,  ///< wait, unless nodes_max new agents have joined
    always,      ///< for a daemon that may restart while its jobs run
};

struct ServerConfig {
    Duration reconnect_window = 500ms;  ///< after a bare close, the same incarnation may come back
    Duration victim_window = 500ms;     ///< within it a communication error is somebody's victim (verdict.h)
    /// How long an embedded daemon waits for EndAcknowledged, and how long a finished job is remembered at
    /// least (Job::remembered_until).
    Duration end_linger = 10s;
    /// How long workers may take to stop: --shutdown-timeout's default. For agents that no round of this daemon has.
    Duration stop_grace = 30s;
    Duration gathering_interval = 1s;  ///< at most one Gathering push per job in this time
    StartHold start_hold = StartHold::none;
    /// The job of the node that embeds this daemon; empty in musterd. The daemon ends with that job, and every round of
    /// it includes that node. GET /status reports "embedded".
    std::string embedded_for;
    native::HashesOf secret;              ///< of each job; empty: everybody may join
    std::string authentication = "none";  ///< for GET /status: "key", "local users" or "none"
    std::string secret_seed;              ///< beside a secret: random bytes, for its challenges
    /// Beyond it the oldest job that this daemon never sealed a round of gives way, and then the one that has been
    /// without agents for longest.
    std::uint32_t jobs_max = 10'000;
    std::uint32_t nodes_max = 20'000;  ///< per job
    /// Of its port. No node opens a job that needs more; a job that runs elsewhere with more keeps its nodes.
    std::size_t connections_max = std::numeric_limits<std::size_t>::max();
    std::size_t other_descriptors = 0;  ///< that the daemon needs beside connections, for messages
    /// The children of a node in the tree of a round's members, and the heartbeats of a job. Only simulations have
    /// others.
    std::uint32_t fan_out = native::tree_fan_out;
    std::uint32_t heartbeats_per_second = native::heartbeats_per_second;
    bool allow_faults = false;  ///< muster fault may be aimed at this daemon itself
    bool keep_records = false;  ///< steps carry records: there is somewhere to keep them
    /// The host's wall clock minus its monotonic clock. Records use it so that the next daemon, possibly on another
    /// host, knows the age of events; messages use it for times. No decision depends on it.
    Duration to_wall_clock{};
};

// ---- events ----
struct ConnectionAccepted {
    ConnectionId connection = 0;
    std::string peer;  ///< numeric address, for messages
    /// The job whose key the peer has proved by TLS; empty: the connection is in clear text.
    std::string proven_job = {};
    /// It stays within this host, so with a secret clear text and a Proof are enough.
    bool is_local = true;
};
struct ConnectionEnded {
    ConnectionId connection = 0;
    std::string why;
};
struct Received {
    ConnectionId connection = 0;
    native::Message message;
};
/// A torchrun agent uses this port's store for a job of this name. Repeated while it waits.
struct TorchrunConnected {
    std::string job;
    std::string peer;  ///< numeric address, for messages
};
struct Elapsed {};
/// The records cannot be written, so actions are held back: no deadline takes effect until DecisionsFreed.
struct DecisionsHeld {};
struct DecisionsFreed {};
using ServerEvent = std::variant<ConnectionAccepted, ConnectionEnded, Received, TorchrunConnected, Elapsed,
                                 DecisionsHeld, DecisionsFreed>;

// ---- actions ----
struct SendTo {
    std::vector<ConnectionId> connections;  ///< one encoding, many receivers
    native::Message message;
};
struct CloseConnection {
    ConnectionId connection = 0;  ///< after what was sent to it has gone out
    std::string why;
};
/// The static back end: give the workers' store on the rendezvous port a fresh, empty map and drop its old connections.
struct FreshStore {
    std::string job;
    std::vector<std::string> clients;  ///< Assigned::store_clients of its new round
};
/// A job is over, and every agent has acknowledged it or timed out: an embedded daemon may stop.
struct JobForgotten {
    std::string job;
};
/// An injected fault for this daemon, to be applied once all messages have been sent.
struct SufferFault {
    native::Fault fault;
};
using ServerAction = std::variant<SendTo, CloseConnection, FreshStore, JobForgotten, SufferFault>;

/// A record for the next daemon (job_record.h). `value` is opaque to the store; an empty one deletes.
struct Record {
    std::string key;
    std::string value;
};

/// A connection that is more than a stranger's: of an agent in a round that was sealed, or proven.
struct KnownAgent {
    ConnectionId connection = 0;
    /// It has proved to know the secret, or is of a round that this daemon sealed with nodes of several addresses. One
    /// host alone can make up any number of jobs of one node.
    bool proven = false;
};

struct ServerStep {
    std::vector<ServerAction> actions;  ///< to be carried out in order, after `records` are persisted
    std::vector<Record> records;
    std::vector<KnownAgent> known;  ///< who has become known; may repeat
    std::vector<Event> why;         ///< what happened, each once, when something changed
};

struct KeptState;  // job_record.h
class SeenNodes;   // seen_nodes.h

class Server {
  public:
    Server(ServerConfig config, Instant started);
    /// Continues from an earlier daemon's state: all members are disconnected and have one lease to reconnect.
    Server(ServerConfig config, Instant started, KeptState kept);
    ~Server();

    Server& operator=(Server&&) = delete;

    ServerStep step(const ServerEvent& event, Instant now);
    /// When step(Elapsed) must be called at the latest.
    [[nodiscard]] Instant deadline() const;
    /// Every job with its members, rounds and restarts, for people and monitoring.
    [[nodiscard]] std::string status_json(Instant now) const;
    /// The same without the jobs: what concerns the daemon.
    [[nodiscard]] std::string daemon_json(Instant now) const;
    /// One job, also one that is over; "null" for an unknown one. Of its nodes, those that changed for this reader.
    [[nodiscard]] JobPieces job_pieces(const std::string& job, Instant now, SeenNodes& seen) const;
    /// Where the job's agents answer (status.h); no agents for a job that is over. Nothing: there is no such job.
    [[nodiscard]] std::optional<std::string> agents_json(const std::string& job, Instant now) const;
    /// All jobs in numbers, with those that were forgotten in the last hour.
    [[nodiscard]] std::vector<JobSummary> summaries(Instant now) const;
    /// For tests, of all jobs (job.h).
    [[nodiscard]] bool indexes_agree() const;
    /// How much later than their pace heartbeats came, or 0, once each.
    [[nodiscard]] const TimeHistogram& heartbeat_lateness() const;

  private:
    class Implementation;
    /// In the order of their ids.
    [[nodiscard]] std::vector<const Job*> jobs() const;
    [[nodiscard]] const PastJobs& past() const;
    [[nodiscard]] const ServerConfig& config() const;

    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
