// The daemon's decisions for all of its jobs, pure: connections and messages in, actions out.
//
// One `Server` serves many jobs. It knows connections by number and never sees a socket; the driver (net/) decodes
// whole messages before they come here. Phase changes of a job happen in one place, Job::settle (job.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/wire/native/messages.h"
#include "rendezvous/wire/native/secret.h"

namespace muster::rendezvous {

/// Numbers a connection of the driver; never reused.
using ConnectionId = std::uint64_t;

/// Whether a daemon that has just started seals nothing for one lease, in which the members of a round that runs
/// already can find it.
enum class QuietStart {
    none,        ///< nothing can have run before
    until_full,  ///< unless nodes_max fresh agents are there. They prove nothing where nodes come and go meanwhile
    always,      ///< for a daemon that may be started again beneath its jobs
};

struct ServerConfig {
    Duration reconnect_window = 500ms;  ///< after a bare close, the same incarnation may come back
    Duration victim_window = 500ms;     ///< within it a communication error is somebody's victim (verdict.h)
    /// How long an embedded daemon waits for EndAcknowledged, and how long a finished job is remembered.
    Duration end_linger = 10s;
    Duration gathering_interval = 1s;  ///< at most one Gathering push per job in this time
    QuietStart quiet_start = QuietStart::none;
    /// In a node's muster: the job of that node, empty in a musterd. The daemon ends with that job, so no other job's
    /// nodes should rely on it (GET /status says that it is embedded), and every round of it has that node in it.
    std::string embedded_for;
    native::KeyedHash secret;  ///< of the jobs; empty: everybody may join
    std::string secret_seed;   ///< beside a secret: random bytes, for its challenges
    std::uint32_t jobs_max = 10'000;
    std::uint32_t nodes_max = 20'000;  ///< per job
    bool allow_faults = false;         ///< muster fault may be aimed at this daemon itself
    bool keep_records = false;         ///< steps carry records: there is somewhere to keep them
    /// The host's wall clock less its monotonic one. In records, so that the next daemon, maybe on another host, knows
    /// how long ago something was, and for people: when a lost node was last heard. Nothing is decided by it.
    Duration to_wall_clock{};
};

// ---- events ----
struct ConnectionAccepted {
    ConnectionId connection = 0;
    std::string peer;  ///< numeric address, for messages
};
struct ConnectionEnded {
    ConnectionId connection = 0;
    std::string why;
};
struct Received {
    ConnectionId connection = 0;
    native::Message message;
};
/// An agent of torchrun's uses the store beside us for a job of this name. It comes again as long as it waits.
struct TorchrunCame {
    std::string job;
    std::string peer;  ///< numeric address, for messages
};
struct Elapsed {};
/// The records cannot be kept, so actions do not go out: no deadline takes effect until DecisionsFreed.
struct DecisionsHeld {};
struct DecisionsFreed {};
using ServerEvent =
    std::variant<ConnectionAccepted, ConnectionEnded, Received, TorchrunCame, Elapsed, DecisionsHeld, DecisionsFreed>;

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
};
/// A job is over and every agent knows (or has had its time): an embedded daemon may go.
struct JobForgotten {
    std::string job;
};
/// Somebody rehearses the loss of this daemon: to be done once what was sent has gone out.
struct SufferFault {
    native::Fault fault;
};
using ServerAction = std::variant<SendTo, CloseConnection, FreshStore, JobForgotten, SufferFault>;

/// A fact to keep so that a restarted daemon knows it (job_record.h). `value` is opaque to whoever stores it; an empty
/// one deletes.
struct Record {
    std::string key;
    std::string value;
};

struct ServerStep {
    std::vector<ServerAction> actions;  ///< to be carried out in order, after `records` are persisted
    std::vector<Record> records;
    std::vector<std::string> why;  ///< log lines, each once, when something changed
};

struct KeptState;  // job_record.h

class Server {
  public:
    Server(ServerConfig config, Instant started);
    /// Goes on where the daemon before it stood: all members are away, and have a lease to come back.
    Server(ServerConfig config, Instant started, KeptState kept);
    ~Server();

    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    ServerStep step(const ServerEvent& event, Instant now);
    /// When step(Elapsed) must be called at the latest.
    [[nodiscard]] Instant deadline() const;
    /// Every job with its members, rounds and restarts, for people and monitoring.
    [[nodiscard]] std::string status_json(Instant now) const;

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
