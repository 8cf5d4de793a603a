#include "launcher/node_run.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <optional>
#include <random>

#include "agent/agent.h"
#include "agent/client_link.h"
#include "agent/process/posix_process_host.h"
#include "launcher/advertised_addresses.h"
#include "launcher/agent_config.h"
#include "launcher/embedded_daemon.h"
#include "launcher/environment_probe.h"
#include "launcher/exit_code.h"
#include "launcher/round_stores.h"
#include "launcher/testament.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/net/job_secret.h"

namespace muster::launcher {

namespace {

constexpr Duration resolve_limit = 5s;  // a name service that is slower than this would hold up the start
constexpr Duration end_linger = 10s;    // for the other agents to hear the end from our daemon
constexpr Duration idle_look = 20ms;    // between looks whether any agent is still connected to it

Incarnation random_incarnation() {
    std::random_device device;
    return (Incarnation{device()} << 32) | device();
}

}  // namespace

class NodeRun::Body {
  public:
    Body(LaunchConfig config, Entry entry, Environment environment)
        : config_(std::move(config)), entry_(std::move(entry)), environment_(std::move(environment)) {
        facts_.identity = {.host = host_name(), .pid = ::getpid(), .incarnation = random_incarnation()};
        facts_.stderr_is_terminal = ::isatty(STDERR_FILENO) == 1;
    }

    std::variant<agent::Ending, NotLaunched> run(agent::GuardianHandle guardian) {
        hold_signals();
        if (auto wrong = host_daemon()) return *wrong;
        facts_.addresses = advertised_addresses(config_, endpoint_addresses_);
        if (auto started = net_loop_.start_thread(); !started)
            return NotLaunched{exit_codes::internal, started.error().context};

        agent::PosixProcessHost host(io_, std::move(guardian));
        auto client = client_config(config_, facts_);
        client.secret_seed = rendezvous::random_nonce();
        agent::ClientLink link(io_, std::move(client));
        RoundStores stores(config_,
                           {.loop = net_loop_,
                            .post = [this](auto work) { boost::asio::post(io_, std::move(work)); },
                            .answer = [&link](const native::PeerAsk& ask) { return link.client().answer(ask); }});
        agent::Agent agent(io_, agent_config(config_, entry_, environment_, facts_), link, host, stores);
        if (daemon_ == nullptr) host.set_testament(testament());
        agent.on_progress = [](const std::string& line) { print_notice(cat("muster: ", line, "\n")); };
        agent.on_end = [this](agent::Ending ending) {
            ending_ = std::move(ending);
            linger();
        };
        watch_for_haste();
        agent.start();
        ::pthread_sigmask(SIG_UNBLOCK, &held_signals_, nullptr);
        io_.run();
        return ending_.value_or(agent::Ending{agent::AgentFailed{"the event loop ended before the job did"}});
    }

    [[nodiscard]] const std::string& host() const { return facts_.identity.host; }

  private:
    /// A signal that comes before the agent's handlers are there waits for them, and is then a stop in order. Threads
    /// started meanwhile keep these signals blocked, so that only this one gets them.
    void hold_signals() {
        ::sigemptyset(&held_signals_);
        for (const int signal : config_.handled_signals) ::sigaddset(&held_signals_, signal);
        if (config_.preemption_signal != 0) ::sigaddset(&held_signals_, config_.preemption_signal);
        ::pthread_sigmask(SIG_BLOCK, &held_signals_, nullptr);
    }

    /// A stop signal ends the lingering; one that came earlier, while the agent was ending, means that there is to be
    /// none. Who is cancelled does not linger anyway.
    void watch_for_haste() {
        for (const int signal : config_.handled_signals) {
            boost::system::error_code ignored;  // the agent has said so
            haste_.add(signal, ignored);
        }
        haste_.async_wait([this](const boost::system::error_code& cancelled, int) {
            if (cancelled) return;
            in_haste_ = true;
            if (ending_) io_.stop();
        });
    }

    /// Finds out whose the rendezvous is, and opens our daemon if it is ours.
    std::optional<NotLaunched> host_daemon() {
        if (!config_.standalone)
            if (auto resolved = resolve_host(config_.endpoint.host, resolve_limit)) endpoint_addresses_ = *resolved;
        const auto choice =
            hosting(config_, [this] { return is_own_host(config_.endpoint.host, endpoint_addresses_); });
        if (choice == Hosting::no) return std::nullopt;
        auto opened = open_daemon(config_, choice, endpoint_addresses_, net_loop_, [this](const std::string& job) {
            boost::asio::post(io_, [this, job] { on_forgotten(job); });
        });
        if (!opened)
            return NotLaunched{
                exit_codes::configuration,
                cat("cannot serve the rendezvous ", describe(config_.endpoint), ": ", opened.error().context)};
        daemon_ = std::move(*opened);
        facts_.hosts_endpoint = daemon_ != nullptr;
        return std::nullopt;
    }

    [[nodiscard]] std::string testament() const {
        native::Hello hello;
        hello.job = config_.job;
        hello.node = facts_.identity;
        if (config_.secret) hello.challenge = config_.secret(cat("muster testament ", facts_.identity.incarnation));
        return write_testament({.addresses = endpoint_addresses_,
                                .port = config_.endpoint.port,
                                .hello = std::move(hello),
                                .why = "its agent died"});
    }

    void on_forgotten(const std::string& job) {
        if (job != config_.job) return;
        forgotten_ = true;
        if (ending_) io_.stop();
    }

    /// The others hear the end from our daemon, so it waits for them; unless this node leaves a job that goes on, for
    /// which there is nothing to wait.
    void linger() {
        const bool job_is_over =
            std::holds_alternative<agent::JobSucceeded>(*ending_) || std::holds_alternative<agent::JobFailed>(*ending_);
        if (daemon_ == nullptr || forgotten_ || in_haste_ || !job_is_over) return io_.stop();
        linger_until_ = std::chrono::steady_clock::now() + end_linger;
        look_whether_idle();
    }

    void look_whether_idle() {
        if (daemon_->idle() || std::chrono::steady_clock::now() >= linger_until_) return io_.stop();
        idle_timer_.expires_after(idle_look);
        idle_timer_.async_wait([this](const boost::system::error_code& cancelled) {
            if (!cancelled) look_whether_idle();
        });
    }

    LaunchConfig config_;
    Entry entry_;
    Environment environment_;
    NodeFacts facts_;
    std::vector<std::string> endpoint_addresses_;
    sigset_t held_signals_{};

    boost::asio::io_context io_{1};
    rendezvous::EventLoop net_loop_;
    std::unique_ptr<rendezvous::Daemon> daemon_;
    boost::asio::steady_timer idle_timer_{io_};
    Instant linger_until_{};
    bool forgotten_ = false;
    boost::asio::signal_set haste_{io_};
    bool in_haste_ = false;
    std::optional<agent::Ending> ending_;
};

NodeRun::NodeRun(LaunchConfig config, Entry entry, Environment environment)
    : body_(std::make_unique<Body>(std::move(config), std::move(entry), std::move(environment))) {}

NodeRun::~NodeRun() = default;

std::variant<agent::Ending, NotLaunched> NodeRun::run(agent::GuardianHandle guardian) {
    return body_->run(std::move(guardian));
}

const std::string& NodeRun::host() const {
    return body_->host();
}

agent::GuardianConfig guardian_config(const LaunchConfig& config) {
    agent::GuardianConfig guardian;
    guardian.unfed_max = config.lease * 8 / 10;
    guardian.on_agent_death_max = 2s;
    guardian.on_agent_death = [limit = guardian.on_agent_death_max, secret = config.secret](
                                  std::string_view testament) { deliver_testament(testament, limit, secret); };
    return guardian;
}

}  // namespace muster::launcher
