#include "launcher/node/embedded_daemon.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "agent/diagnosis/json_members.h"
#include "launcher/node/job_access.h"
#include "launcher/scheduler/mpi_process.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/store_client/blocking_socket.h"

namespace muster::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::BlockingSocket;

/// Timeout for an answer from the muster that owns the port, shared by all addresses. Generous, for busy hosts.
constexpr Duration answer_wait = 5s;
/// Timeout after an answer that is not muster's: its port may still pass to a muster.
constexpr Duration stranger_wait = 1s;
constexpr Duration pause = 20ms;  // another muster may have bound the port before its own agent joins

struct Served {
    bool is_silent = true;
    bool is_muster = false;
    bool this_job = false;  ///< Also true for a musterd, which serves any job.
    bool other_jobs = false;
};

constexpr std::string_view status_begin = "HTTP/1.1 200";
constexpr std::string_view server_line = "\r\nServer: muster\r\n";

/// The deadlines of one question.
struct WaitRule {
    Instant deadline;
    Instant stranger_deadline;  ///< Applies after an answer that is not muster's.
    const IsStopping& is_stopping;

    [[nodiscard]] Instant next_look(Instant until) const { return std::min(until, Clock::now() + pause); }
};

/// Reads the answer to GET /status, as long as it may be a status. May be empty.
std::string receive_status(BlockingSocket& socket, const WaitRule& patience) {
    constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;
    constexpr std::size_t head_bytes_max = 1024;
    std::string answer;
    const auto may_be_status = [&answer] { return answer.starts_with(status_begin.substr(0, answer.size())); };
    auto until = patience.deadline;
    while (answer.size() < answer_bytes_max && may_be_status() && !patience.is_stopping()) {
        const auto piece = socket.receive(patience.next_look(until));
        if (piece) {
            answer.append(*piece);
            // A muster names itself in the first bytes and may send the rest late. Another server may never close the
            // connection.
            const auto head = std::string_view(answer).substr(0, head_bytes_max);
            const bool is_muster = head.find(server_line) != std::string_view::npos;
            until = is_muster ? patience.deadline : std::min(patience.deadline, patience.stranger_deadline);
        } else if (piece.error().code != Errc::timed_out || Clock::now() >= until) {
            break;
        }
    }
    return answer;
}

/// Returns the daemon's status page, or the beginning of another server's answer (may be empty), or nullopt if nobody
/// listens. Returns early when `is_stopping`.
std::optional<std::string> request_status(const SocketAddress& address, const WaitRule& patience) {
    constexpr std::string_view question = "GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    auto socket = BlockingSocket::begin_to_connect(address);
    if (!socket) return std::nullopt;
    // A server that accepts nothing and has a full queue does not complete the connection.
    for (;;) {
        const auto connected = socket->wait_until_connected(patience.next_look(patience.deadline));
        if (connected) break;
        if (connected.error().code != Errc::timed_out) return std::nullopt;
        if (patience.is_stopping() || Clock::now() >= patience.deadline) return std::string();
    }
    if (!socket->send(question, patience.deadline)) return std::string();
    return receive_status(*socket, patience);
}

Served read_status(std::string_view answer, const std::string& job) {
    const auto body = answer.find("\r\n\r\n");
    const Served other{.is_silent = answer.empty()};
    if (answer.find(server_line) != std::string_view::npos) {
        // Another user's muster on this host.
        if (answer.starts_with("HTTP/1.1 403")) return {.is_silent = false, .is_muster = true, .other_jobs = true};
        // A musterd at one address, to which this node comes as other hosts do: it asks for a token. A muster serves
        // loopback, too, and answers there.
        if (answer.starts_with("HTTP/1.1 401")) return {.is_silent = false, .is_muster = true, .this_job = true};
    }
    if (!answer.starts_with(status_begin) || body == std::string_view::npos) return other;
    const auto status = nlohmann::json::parse(answer.substr(body), nullptr, false);
    if (!status.is_object() || !status.contains("jobs") || !status["jobs"].is_array()) return other;
    // A musterd serves any job. A muster that hosts another job exits with that job.
    Served served{.is_silent = false, .is_muster = true, .this_job = !agent::is_true(status, "embedded")};
    for (const auto& one : status["jobs"])
        (agent::text_of(one, "id") == job ? served.this_job : served.other_jobs) = true;
    return served;
}

/// Returns the answer of the first muster among the addresses, else another server's. Nothing if nobody listens.
std::optional<Served> served_at(const PortQuestion& question, Instant deadline, Instant stranger_deadline) {
    std::vector<std::string> addresses{"127.0.0.1", "::1"};
    for (const auto& address : question.addresses)
        if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
    std::optional<Served> served;
    auto left_count = static_cast<std::int64_t>(addresses.size());
    for (const auto& text : addresses) {
        // A silent server at one address must not use up the time of the other addresses.
        const auto until = Clock::now() + (deadline - Clock::now()) / left_count--;
        const auto address = SocketAddress::from_numeric(text, question.port);
        const auto answer =
            address ? request_status(*address, {until, stranger_deadline, question.is_stopping}) : std::nullopt;
        if (!answer) continue;
        served = read_status(*answer, question.job);
        if (served->is_muster) return served;
    }
    return served;
}

/// The addresses to bind. Empty: all. On loopback: both addresses, because its nodes may write 127.0.0.1, ::1 or
/// localhost.
std::vector<std::string> addresses_to_serve(const LaunchConfig& config) {
    const auto& host = config.endpoint.host;
    if (config.standalone) return {"127.0.0.1"};
    if (serves_other_hosts(config)) return {""};
    std::vector<std::string> addresses{"127.0.0.1", "::1"};
    const bool is_numeric = SocketAddress::from_numeric(host, 0).has_value();
    if (is_loopback(host) && is_numeric && std::ranges::find(addresses, host) == addresses.end())
        addresses.push_back(host);
    return addresses;
}

using Listeners = std::vector<std::unique_ptr<rendezvous::Listener>>;

/// Listens on one port at all of these addresses that this host has.
Result<Listeners> open_listeners(const LaunchConfig& config, int tries_left = 20) {
    Listeners listeners;
    auto port = config.endpoint.port;
    for (const auto& address : addresses_to_serve(config)) {
        auto opened = rendezvous::Listener::open({.address = address,
                                                  .ports = {port, port},
                                                  .local_users = config.local_users,
                                                  .sources = config.allow_from});
        if (opened) {
            port = (*opened)->port();
            listeners.push_back(*std::move(opened));
        } else if (listeners.empty() || opened.error().code == Errc::already_exists) {
            // The kernel chose a port that is free at the first address. Kept meanwhile, it is not chosen again.
            if (!listeners.empty() && config.endpoint.port == 0 && tries_left > 0)
                return open_listeners(config, tries_left - 1);
            return opened.error();
        }
    }
    return listeners;
}

Result<std::unique_ptr<rendezvous::Daemon>> open_daemon_once(const LaunchConfig& config, rendezvous::EventLoop& loop,
                                                             rendezvous::DaemonConfig daemon) {
    auto listeners = MUSTER_TRY(open_listeners(config));
    auto first = std::move(listeners.front());
    listeners.erase(listeners.begin());
    return rendezvous::Daemon::open(loop, std::move(daemon), nullptr, std::move(first), std::move(listeners));
}

rendezvous::DaemonConfig embedded_daemon(const LaunchConfig& config, const DaemonCallbacks& callbacks) {
    // A daemon at a known endpoint may replace the first daemon of a job whose other nodes still run a round. It waits
    // for them, except where the world is complete with this node: this node was in that round.
    auto daemon = daemon_config(
        config, config.standalone ? rendezvous::StartHold::none : rendezvous::StartHold::until_full, callbacks.memory);
    daemon.server.embedded_for = config.job;
    daemon.on_job_forgotten = callbacks.on_job_forgotten;
    daemon.on_key_question = callbacks.on_key_question;
    daemon.on_event = callbacks.on_event;
    return daemon;
}

/// Nodes wait for a daemon that is stopped. Of another user's process nothing is known: it may be one.
bool may_be_muster(std::uint16_t port) {
    const auto holder = rendezvous::describe_port_holder(port);
    return holder.empty() || holder.find("(muster") != std::string::npos;
}

std::string advice(PortOwner owner, const LaunchConfig& config) {
    const bool is_static = std::string_view(endpoint_option(config)) == "--master-addr";
    const auto other_port = cat("choose another port for this one (",
                                is_static ? "--master-port" : endpoint_option(config), ", the same on all nodes)");
    switch (owner) {
        case PortOwner::other_job: return cat("; it serves another job: ", other_port);
        case PortOwner::stranger:
            return cat("; the process there is not muster and probably belongs to another job: ", other_port,
                       ", or wait until it ends");
        case PortOwner::nobody:
            return cat("; nobody answers there, probably because another job on this host uses the port: ", other_port,
                       ", or wait until it ends");
        case PortOwner::silent:
            return cat("; it gave no answer within ", describe(answer_wait),
                       ". If it is the rendezvous of this job, it is stopped or overloaded: resume that process, and "
                       "this node joins. If not, stop this node, and ",
                       other_port);
        case PortOwner::this_job:
        case PortOwner::unknown: break;
    }
    return {};
}

}  // namespace

rendezvous::DaemonConfig daemon_config(const LaunchConfig& config, rendezvous::StartHold start_hold,
                                       std::shared_ptr<MemoryBudget> memory) {
    rendezvous::DaemonConfig daemon;
    daemon.limits.memory = std::move(memory);
    daemon.listen.sources = config.allow_from;
    daemon.has_page = !config.no_web;
    daemon.keys = config.keys;
    daemon.server.start_hold = start_hold;
    daemon.server.allow_faults = config.allow_faults;
    daemon.server.to_wall_clock =
        std::chrono::system_clock::now().time_since_epoch() - std::chrono::steady_clock::now().time_since_epoch();
    daemon.server.authentication = authentication(config);
    daemon.server.secret_seed = rendezvous::random_nonce();
    return daemon;
}

Hosting hosting(const LaunchConfig& config, const std::function<bool()>& own_host) {
    if (config.standalone) return Hosting::told;
    // Daemons that share their state are musterds.
    if (!config.more_endpoints.empty()) return Hosting::no;
    if (config.is_host) return *config.is_host ? Hosting::told : Hosting::no;
    // As in torchrun, node rank 0 of static is the host whatever the endpoint's address (it may be a service's virtual
    // address). A daemon that already answers at the port is used instead.
    if (config.backend == Backend::fixed) return config.node_rank == 0 ? Hosting::inferred : Hosting::no;
    return own_host() ? Hosting::inferred : Hosting::no;
}

std::string advice_for_named_host(const Environment& environment, std::uint16_t port) {
    const auto is_port_of = [&](const auto& place) { return place && place->port == port; };
    if (is_slurm_task(environment) && is_port_of(slurm_task(environment)))
        return "; the port is derived from Slurm's job and step ids: start the step again to get another port, or "
               "write srun --resv-ports=1 (MpiParams=ports=... in slurm.conf)";
    if (is_mpi_process(environment) && is_port_of(mpi_process(environment)))
        return "; the port is derived from mpirun's job id: start it again to get another port, or write "
               "--rdzv-endpoint HOST:PORT";
    return "; stop it, or choose another port on all nodes; without is_host=1 this node would join a muster that "
           "serves the port";
}

PortOwner port_owner(const PortQuestion& question, Instant deadline) {
    const auto stranger_deadline = std::min(deadline, Clock::now() + stranger_wait);
    std::optional<Served> muster;
    for (;;) {
        auto served = served_at(question, deadline, stranger_deadline);
        if (question.is_stopping()) return PortOwner::unknown;
        if (!served) return PortOwner::nobody;
        // The last question may lack time for its answer. An earlier answer of a muster is still valid.
        if (served->is_muster) muster = served;
        if (muster) served = muster;
        if (served->this_job) return PortOwner::this_job;
        const bool has_answered = !served->is_muster && !served->is_silent;
        if (Clock::now() + pause >= (has_answered ? stranger_deadline : deadline)) {
            if (!served->is_muster) return served->is_silent ? PortOwner::silent : PortOwner::stranger;
            return served->other_jobs ? PortOwner::other_job : PortOwner::this_job;
        }
        std::this_thread::sleep_for(pause);
    }
}

Result<std::unique_ptr<rendezvous::Daemon>> open_daemon(LaunchConfig& config, Hosting hosting,
                                                        const std::vector<std::string>& endpoint_addresses,
                                                        rendezvous::EventLoop& loop, const IsStopping& is_stopping,
                                                        const DaemonCallbacks& callbacks) {
    const auto deadline = Clock::now() + answer_wait;
    for (;;) {
        auto opened = open_daemon_once(config, loop, embedded_daemon(config, callbacks));
        if (opened) {
            config.endpoint.port = (*opened)->port();
            return opened;
        }
        auto error = opened.error();
        if (error.code != Errc::already_exists || hosting == Hosting::told) return error;
        auto owner = port_owner({endpoint_addresses, config.endpoint.port, config.job, is_stopping}, deadline);
        if (owner == PortOwner::silent && !may_be_muster(config.endpoint.port)) owner = PortOwner::stranger;
        if (owner == PortOwner::silent) log(LogLevel::warning, error.context, advice(owner, config));
        if (owner == PortOwner::this_job || owner == PortOwner::unknown || owner == PortOwner::silent)
            return std::unique_ptr<rendezvous::Daemon>{};
        if (owner != PortOwner::nobody || Clock::now() >= deadline) {
            error.context += advice(owner, config);
            return error;
        }
        // The owner of the port may have exited between the bind and the question: bind again.
        std::this_thread::sleep_for(pause);
    }
}

}  // namespace muster::launcher
