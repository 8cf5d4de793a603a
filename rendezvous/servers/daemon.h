// The rendezvous daemon: one port, three dialects, many jobs. `musterd` runs it as a program; `muster` embeds it on the
// endpoint's host.
//
// The pure Server (rendezvous/rounds) handles agents (native dialect); the actions of a step wait until its records are
// persisted. One store per port serves PyTorch's TCPStore clients; the static back end clears it at each seal. HTTP
// serves GET / (the page), /healthz, /status (JSON), /metrics (Prometheus) and /api/v1/jobs/JOB/events (JSON lines).
//
// All work and all callbacks run on the loop's thread. `open`, the destructor and the functions below may be called
// from any one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/dialects/event_tap.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/secret/job_key.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

/// GET /key?nonce=NONCE of a peer at the address `source`. `answer` is called once, on the loop's thread, with HTTP's
/// status and the body. `gone` is true once the peer's connection has ended.
using KeyQuestion =
    std::function<void(const std::string& source, std::string nonce, std::shared_ptr<const std::atomic<bool>> gone,
                       std::function<void(unsigned status, std::string body)> answer)>;

struct DaemonConfig {
    ListenConfig listen{.address = {}, .ports = {29400, 29400}};
    ServerConfig server;  ///< `secret` follows from `keys`
    JobKeys keys;         ///< of each job; empty: everybody may join
    NetLimits limits;
    /// Names beside this host's own under which the status pages may be asked for (musterd --status-host).
    std::vector<std::string> status_hosts;
    bool has_page = true;  ///< False (musterd --no-web): neither the page nor its stream.
    /// The records that an earlier daemon kept in the state given to Daemon::open.
    KeptState kept;
    /// A job is over, and every agent has acknowledged it or ServerConfig::end_linger has passed: an embedded daemon
    /// may stop.
    std::function<void(const std::string& job)> on_job_forgotten;
    /// Receives each event's line, on the loop's thread. Must not wait. Empty: nobody but GET /api/v1/jobs/JOB/events.
    EventSink on_event;
    /// How nodes without a key get one from this daemon's launcher. Empty: they do not, and the answer is 404.
    KeyQuestion on_key_question;
    /// With shared state: this daemon became the leader, or another one did. `leader` is the address for agents; empty:
    /// unknown.
    std::function<void()> on_leading;
    std::function<void(const std::string& leader)> on_standing_by;
};

class Daemon {
  public:
    /// Binds, then serves as soon as `loop` runs. An empty `state` means MemoryState. `listener` replaces the one at
    /// `config.listen`, for a caller that needs the port before the state; `more` are additional listeners. `loop` must
    /// outlive the daemon. Errors: as Listener::open and EventLoop::add; already_exists names the process that holds
    /// the port, if known.
    static Result<std::unique_ptr<Daemon>> open(EventLoop& loop, DaemonConfig config,
                                                std::unique_ptr<StateStore> state = nullptr,
                                                std::unique_ptr<Listener> listener = nullptr,
                                                std::vector<std::unique_ptr<Listener>> more = {});
    /// Closes the port and every connection. Messages already queued for agents are sent once, without waiting.
    ~Daemon();

    [[nodiscard]] std::uint16_t port() const;
    /// The bound address for messages, "[::]:29400".
    [[nodiscard]] std::string address() const;
    /// The body of GET /status.
    [[nodiscard]] std::string status_json() const;
    /// Why the state cannot be written now; empty: it can. GET /healthz answers 503 with this text.
    [[nodiscard]] std::string state_trouble() const;
    [[nodiscard]] std::size_t agent_count() const;
    /// The local addresses at which agents of other hosts connected, most used first.
    [[nodiscard]] std::vector<std::string> reached_at() const;
    /// True when no agent is connected. An agent that just lost its connection may still reconnect.
    [[nodiscard]] bool idle() const;

  private:
    class Implementation;
    explicit Daemon(EventLoop& loop);
    EventLoop& loop_;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
