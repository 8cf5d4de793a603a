// The rendezvous daemon: one port, three dialects, many jobs. `musterd` is this and a command line; `muster` embeds it
// when its node is the endpoint's host.
//
// Agents (native dialect) go to the pure Server (rendezvous/rounds); a step's actions are carried out when its records
// are persisted. PyTorch's TCPStore clients go to one store for the whole port, which the static back end empties at
// each seal. HTTP answers GET /healthz, /status (JSON) and /metrics (Prometheus).
//
// Everything happens on the loop's thread. `open`, the destructor and the functions below may be called from any one
// thread; the callbacks come on the loop's thread, so an owner with a loop of its own posts them there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/limits.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/rounds/job_record.h"
#include "rendezvous/rounds/server.h"
#include "rendezvous/state/state_store.h"

namespace muster::rendezvous {

struct DaemonConfig {
    ListenConfig listen{.address = {}, .ports = {29400, 29400}};
    ServerConfig server;
    NetLimits limits;
    /// What the daemon before this one kept in the state that is given to Daemon::open.
    KeptState kept;
    /// A job is over and every agent has acknowledged it, or had ServerConfig::end_linger: an embedded daemon may go.
    std::function<void(const std::string& job)> on_job_forgotten;
    /// Where the state is shared with other daemons: this one leads; or another one does, by the address at which
    /// agents find it (empty: nobody is known).
    std::function<void()> on_leading;
    std::function<void(const std::string& leader)> on_standing_by;
};

class Daemon {
  public:
    /// Binds, then serves as soon as `loop` runs. `state` empty: MemoryState. `listener`: instead of one at
    /// `config.listen`, where the port had to be known before the state; `more`: it serves on these as well. `loop`
    /// outlives the daemon. Errors are Listener::open's and EventLoop::add's; already_exists names the holder of the
    /// port where that can be known.
    static Result<std::unique_ptr<Daemon>> open(EventLoop& loop, DaemonConfig config,
                                                std::unique_ptr<StateStore> state = nullptr,
                                                std::unique_ptr<Listener> listener = nullptr,
                                                std::vector<std::unique_ptr<Listener>> more = {});
    /// Closes the port and every connection; what was already queued for an agent is tried once, without waiting.
    ~Daemon();

    [[nodiscard]] std::uint16_t port() const;
    /// "[::]:29400": the address as bound, for people.
    [[nodiscard]] std::string address() const;
    /// What GET /status answers.
    [[nodiscard]] std::string status_json() const;
    /// Why the state cannot be kept at this moment; empty: it can. GET /healthz answers 503 with it.
    [[nodiscard]] std::string state_trouble() const;
    /// Connections of agents.
    [[nodiscard]] std::size_t agent_count() const;
    /// The addresses of this host at which agents of other hosts have come to join, most used first.
    [[nodiscard]] std::vector<std::string> reached_at() const;
    /// No agent is connected. (One that has just lost its connection may be on its way back.)
    [[nodiscard]] bool idle() const;

  private:
    class Implementation;
    explicit Daemon(EventLoop& loop);
    EventLoop& loop_;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace muster::rendezvous
