#include "launcher/node/node_run.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <optional>
#include <random>

#include "agent/driver/agent.h"
#include "agent/driver/metrics_file.h"
#include "agent/process/posix_process_host.h"
#include "agent/supervision/store_candidates.h"
#include "launcher/host/advertised_addresses.h"
#include "launcher/host/endpoint_look_up.h"
#include "launcher/host/environment_probe.h"
#include "launcher/node/agent_config.h"
#include "launcher/node/death_notice.h"
#include "launcher/node/embedded_daemon.h"
#include "launcher/node/etcd_rendezvous.h"
#include "launcher/node/job_access.h"
#include "launcher/node/key_giver.h"
#include "launcher/node/launch_key.h"
#include "launcher/node/round_stores.h"
#include "launcher/node/signal_reason.h"
#include "launcher/report/exit_code.h"
#include "launcher/scheduler/slurm_task.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/system/start_up_signals.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/client/client.h"
#include "rendezvous/net/event_loop.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/servers/metrics_port.h"

namespace muster::launcher {

namespace {

// The C library asks a name server twice, 5 s each. Until then it is unknown whether this node is the host.
constexpr Duration resolve_limit = 12s;
// A node that must be the host serves at once. The address of its name only orders its own addresses.
constexpr Duration resolve_limit_of_host = 250ms;
constexpr Duration death_notice_limit = 2s;
constexpr Duration slurm_node_limit = 5s;  // timeout for scontrol to report a node's address
constexpr Duration end_linger = 10s;       // timeout for the other agents to receive the end from this node's daemon
// For the parts of a stop besides the grace period and copies to disk: one reader or disk that hangs, 5 s at each
// place.
constexpr Duration stop_slack = 20s;
constexpr Duration last_lines_limit = 5s;  // a disk that hangs holds up the end no longer
constexpr Duration metrics_retry = 10s;    // between attempts to open the port of --metrics-listen, and how many;
constexpr int metrics_tries = 3;           // each failure looks through /proc for the port's holder
constexpr Duration idle_look = 20ms;       // between checks for agents that are still connected

Incarnation random_incarnation() {
    std::random_device device;
    return (Incarnation{device()} << 32) | device();
}

}  // namespace

class NodeRun::Body {
  public:
    Body(LaunchConfig config, Entry entry, Environment environment, const ServiceUnit& unit, NodeEvents& events)
        : config_(std::move(config)),
          entry_(std::move(entry)),
          environment_(std::move(environment)),
          unit_(unit),
          events_(events) {
        facts_.identity = {.host = host_name(), .pid = ::getpid(), .incarnation = random_incarnation()};
        facts_.stdout_is_terminal = ::isatty(STDOUT_FILENO) == 1;
        facts_.stderr_is_terminal = ::isatty(STDERR_FILENO) == 1;
    }

    std::optional<NotLaunched> run(agent::GuardianHandle guardian, OnEnding on_ending) {
        on_ending_ = std::move(on_ending);
        hold_signals();
        resolve_endpoints();
        facts_.addresses = advertised_addresses(config_, endpoint_addresses());
        facts_.cpu_count = usable_cpu_count();
        facts_.network = {.own_address = [this] { return own_address(); },
                          .daemon_address = [this] { return daemon_address_; }};
        if (auto wrong = agree_on_key(config_, environment_, endpoints_, [this] { return is_signalled(); }))
            return *wrong;
        key_giver_ = KeyGiver::make(io_, config_, environment_);
        // Before the daemon: if the options are wrong, no other node has reached this one.
        if (auto wrong = open_metrics_port()) return *wrong;
        if (auto wrong = config_.etcd ? meet_at_etcd() : host_daemon()) return *wrong;
        if (auto running = net_loop_.start_thread(); !running)
            return NotLaunched{exit_codes::internal, running.error().context};

        const auto host = agent::PosixProcessHost::make(io_, std::move(guardian));
        host->on_notice = [](const std::string& line) { print_notice(cat("muster: ", line, "\n")); };
        auto client = client_config(config_, environment_, facts_);
        client.secret_seed = rendezvous::random_nonce();
        rendezvous::Client link(io_, std::move(client));
        link_ = &link;
        keep_standbys(*host);
        RoundStores stores(
            config_, {.loop = net_loop_,
                      .post = [this](auto work) { boost::asio::post(io_, std::move(work)); },
                      .answer = [&link](const native::PeerAsk& ask) { return link.answer(ask); },
                      .addresses = facts_.addresses,
                      .memory = net_memory_,
                      .log_folder = [this] { return agent_->log_folder(); },
                      .kept_logs = [this] { return agent_->kept_logs(); },
                      .stacks = [this](const auto& ranks, auto use) { agent_->tell_stacks(ranks, std::move(use)); }});
        agent::Agent agent(io_, agent_config(config_, entry_, environment_, facts_), link, *host, stores);
        agent_ = &agent;
        if (daemon_ == nullptr) host->set_death_notice(death_notice({}));
        link.on_connected = [this, &host](const Endpoint& daemon) {
            // This node's own daemon dies with this process.
            const bool own =
                daemon_ != nullptr &&
                (!config_.etcd || (is_own_host(daemon.host, {daemon.host}) && daemon.port == daemon_->port()));
            daemon_address_ = daemon.host;
            host->set_death_notice(own ? std::string{} : death_notice(daemon));
        };
        agent.on_event = [this](const Event& event) { events_.take(event); };
        agent.on_progress = [this](const std::string& line) {
            print_notice(cat("muster: ", line, "\n"));
            unit_.status(line);
        };
        agent.on_unsaved = [this](std::string unsaved) { unsaved_ = std::move(unsaved); };
        agent.on_end = [this, &stores](agent::Ending ending) {
            ending_ = std::move(ending);
            reason_.when_known([this, &stores] {
                report_ending();
                show_last_lines(stores);
            });
        };
        reason_.on_reason = [](const std::string& why) {
            print_notice(cat("muster: reason of the signal: ", why, "\n"));
        };
        agent.on_signal = [this](int) { reason_.ask(); };
        watch_for_stop();
        agent.start();
        unit_.ready();
        ::pthread_sigmask(SIG_UNBLOCK, &held_signals_, nullptr);
        io_.run();
        if (!ending_) ending_ = agent::AgentFailed{"the event loop ended before the job did"};
        report_ending();
        return std::nullopt;
    }

    [[nodiscard]] agent::ReportContext report_context() const {
        const bool is_here = daemon_address_.empty() || is_loopback(daemon_address_);
        return {.job = shown_job(config_),
                .host = facts_.identity.host,
                .signal_reason = reason_.text(),
                .unsaved = unsaved_,
                .job_is_named = config_.named_job != "none",
                .entry = std::string(base_name(config_.script)),
                .standbys = standbys_,
                .authentication =
                    std::string(authentication(config_, is_here ? DaemonPlace::here : DaemonPlace::elsewhere))};
    }

  private:
    /// Blocks signals until the agent's handlers exist; a pending signal is then an orderly stop. Threads started
    /// meanwhile inherit the mask, so that only this thread receives these signals.
    void hold_signals() {
        ::sigemptyset(&held_signals_);
        for (const int signal : config_.handled_signals) ::sigaddset(&held_signals_, signal);
        if (config_.preemption_signal != 0) ::sigaddset(&held_signals_, config_.preemption_signal);
        ::pthread_sigmask(SIG_BLOCK, &held_signals_, nullptr);
        end_start_up_signals();
    }

    /// The end is settled, and this signal's handler goes with the agent: its default would end this process.
    void ignore_late_notices() const {
        sigset_t notice;
        ::sigemptyset(&notice);
        if (config_.preemption_signal != 0) ::sigaddset(&notice, config_.preemption_signal);
        ::pthread_sigmask(SIG_BLOCK, &notice, nullptr);
    }

    /// A stop signal ends the linger time. A signal received earlier, while the agent was stopping, skips it. A
    /// cancelled job has none.
    void watch_for_stop() {
        for (const int signal : config_.handled_signals) {
            boost::system::error_code ignored;  // The agent has reported it.
            stop_signals_.add(signal, ignored);
        }
        stop_signals_.async_wait([this](const boost::system::error_code& cancelled, int) {
            if (cancelled) return;
            is_stopping_ = true;
            unit_.stopping(config_.grace + config_.persist_limit + stop_slack);
            if (ending_) io_.stop();
        });
    }

    void keep_standbys(agent::PosixProcessHost& host) {
        if (config_.warm_workers > 0 && entry_.may_be_warm)
            host.keep_standbys({.count_max = std::min(config_.warm_workers, config_.workers_per_node),
                                .by_memory = config_.warm_by_memory,
                                .imports = config_.warm_imports});
        else if (config_.warm_workers > 0)
            log(LogLevel::warning,
                "--warm-workers has no effect: only a Python script or module without --no-python, --run-path and "
                "--local-rank can be warm");
        if (config_.warm_before_join && config_.warm_workers == 0)
            log(LogLevel::warning, "--warm-join has no effect without --warm-workers");
        host.on_standbys = [this](const native::StandbysSeen& seen) { note_standbys(seen); };
    }

    /// The addresses of the first endpoint, then those of the others. This host's own name needs no lookup.
    void resolve_endpoints() {
        if (config_.standalone) return;
        std::vector<Endpoint> all{config_.endpoint};
        const auto& more = config_.etcd ? config_.etcd->members : config_.more_endpoints;
        all.insert(all.end(), more.begin(), more.end());
        if (all.size() == 1 && is_own_name(config_.endpoint.host)) return;
        const bool told = config_.is_host == true && all.size() == 1;
        auto found =
            look_up_endpoints(all, told ? resolve_limit_of_host : resolve_limit, [this] { return is_signalled(); });
        if (found.front().empty() && !told) found.front() = ask_slurm_for(config_.endpoint.host);
        // Of another host's addresses, one that this host has too (a bridge) leads back to this host.
        if (config_.is_host == false && config_.endpoint.host.find(',') != std::string::npos)
            found.front() = agent::store_candidates(found.front(), own_addresses(), {});
        first_count_ = found.front().size();
        facts_.known_addresses = join(found.front(), ",");
        for (std::size_t i = 0; i < all.size(); ++i)
            for (const auto& address : found[i]) endpoints_.push_back({address, all[i].port});
        if (config_.etcd)
            for (std::size_t i = 1; i < all.size(); ++i) config_.etcd->known_addresses.push_back(join(found[i], ","));
    }

    /// If the endpoint's host has no address here, it may be a Slurm node whose name only Slurm knows.
    [[nodiscard]] std::vector<std::string> ask_slurm_for(const std::string& host) const {
        if (!is_slurm_task(environment_)) return {};
        auto addresses = slurm_node_addresses(host, slurm_node_limit, [this] { return is_signalled(); });
        if (!addresses.empty())
            log(LogLevel::info, "the name '", host, "' has no address here; Slurm's for this node is ",
                join(addresses, ","));
        return addresses;
    }

    /// True if a stop signal is pending.
    [[nodiscard]] bool is_signalled() const {
        sigset_t waiting;
        if (::sigpending(&waiting) != 0) return false;
        return std::ranges::any_of(config_.handled_signals,
                                   [&](int signal) { return ::sigismember(&waiting, signal) == 1; });
    }

    /// The address at which other nodes connected to this node's daemon, else the best one.
    [[nodiscard]] std::string own_address() const {
        const auto& all = facts_.addresses;
        const auto reached = daemon_ != nullptr ? daemon_->reached_at() : std::vector<std::string>{};
        for (const auto& address : reached)
            if (std::ranges::find(all, address) != all.end()) return address;
        return all.front();
    }

    [[nodiscard]] std::vector<std::string> endpoint_addresses() const {
        std::vector<std::string> addresses;
        for (std::size_t i = 0; i < first_count_; ++i) addresses.push_back(endpoints_[i].host);
        return addresses;
    }

    /// This node's daemon may be the leader. etcd decides.
    std::optional<NotLaunched> meet_at_etcd() {
        endpoints_.clear();
        EtcdCallbacks callbacks;
        callbacks.leader = [this](std::optional<Endpoint> leader, std::string why) {
            boost::asio::post(io_, [this, leader = std::move(leader), why = std::move(why)]() mutable {
                link_->leader_is(leader, std::move(why));
            });
        };
        callbacks.on_event = events_.daemon_sink();
        callbacks.memory = net_memory_;
        callbacks.job_forgotten = [this](const std::string& job) {
            boost::asio::post(io_, [this, job] { on_forgotten(job); });
        };
        auto opened = EtcdRendezvous::open(config_, address_list(facts_.addresses), net_loop_, std::move(callbacks));
        if (!opened) return NotLaunched{exit_codes::configuration, opened.error().context};
        etcd_ = *std::move(opened);
        daemon_ = etcd_->daemon();
        return std::nullopt;
    }

    /// Determines the rendezvous' host, and opens the daemon if it is this node.
    std::optional<NotLaunched> host_daemon() {
        const auto addresses = endpoint_addresses();
        const auto choice = hosting(config_, [&] { return is_own_host(config_.endpoint.host, addresses); });
        if (choice == Hosting::no) return std::nullopt;
        if (choice == Hosting::inferred) warn_of_alias(config_, addresses);
        auto asked = addresses;
        asked.insert(asked.end(), facts_.addresses.begin(), facts_.addresses.end());
        auto opened = open_daemon(
            config_, choice, asked, net_loop_, [this] { return is_signalled(); },
            {.on_job_forgotten =
                 [this](const std::string& job) { boost::asio::post(io_, [this, job] { on_forgotten(job); }); },
             .on_key_question = key_giver_ ? key_question() : rendezvous::KeyQuestion{},
             .on_event = events_.daemon_sink(),
             .memory = net_memory_});
        if (!opened) {
            const bool is_taken = choice == Hosting::told && opened.error().code == Errc::already_exists;
            return NotLaunched{
                exit_codes::configuration,
                cat("cannot serve the rendezvous ", describe(config_.endpoint), ": ", opened.error().context,
                    is_taken ? advice_for_named_host(environment_, config_.endpoint.port) : "")};
        }
        embedded_ = std::move(*opened);
        daemon_ = embedded_.get();
        // By loopback, because a name may lead elsewhere. This node's daemon listens at all of its addresses.
        if (!config_.standalone) facts_.known_addresses = "127.0.0.1,::1";
        for (const auto& address : asked)
            if (daemon_ == nullptr && !is_loopback(address) && SocketAddress::from_numeric(address, 0))
                facts_.known_addresses += cat(',', address);
        facts_.hosts_endpoint = daemon_ != nullptr;
        return std::nullopt;
    }

    /// For --metrics-listen.
    std::optional<NotLaunched> open_metrics_port(int tries = metrics_tries) {
        if (config_.metrics_listen.address.empty()) return std::nullopt;
        const auto& ports = config_.metrics_listen.ports;
        auto opened = rendezvous::MetricsPort::open(
            net_loop_, {.listen = {.address = config_.metrics_listen.address,
                                   .ports = ports,
                                   .local_users = config_.local_users,
                                   .sources = config_.allow_from},
                        .keys = config_.keys,
                        .page = [this](MetricsFormat format) { return agent_->metrics(format); },
                        .post = [this](auto work) { boost::asio::post(io_, work); }});
        if (!opened && opened.error().code != Errc::already_exists)
            return NotLaunched{exit_codes::configuration, cat("--metrics-listen: ", opened.error().context)};
        if (!opened) {
            retry_metrics_port(opened.error().context, tries);
            return std::nullopt;
        }
        metrics_port_ = *std::move(opened);
        if (tries < metrics_tries || ports.first == 0 || ports.first < ports.last)
            print_notice(cat("muster: metrics of this node: http://", metrics_port_->place(), "/metrics\n"));
        return std::nullopt;
    }

    /// Metrics stop no job. The port may be that of an earlier launcher of this job, which just ends.
    void retry_metrics_port(const std::string& trouble, int tries) {
        log(LogLevel::warning, "--metrics-listen: ", trouble,
            tries == 0 ? "; this node serves no metrics. Give each launcher of a host a port of its own, such as "
                         "9501-9508, or 0"
                       : cat("; tried again in ", describe(metrics_retry)));
        if (tries == 0) return;
        call_after(metrics_timer_, metrics_retry, [this, tries] {
            if (const auto wrong = open_metrics_port(tries - 1)) log(LogLevel::warning, wrong->why);
        });
    }

    /// The daemon asks on its own loop, and hears the answer there.
    [[nodiscard]] rendezvous::KeyQuestion key_question() {
        return [this](const std::string& source, std::string nonce, KeyGiver::Gone gone, KeyGiver::Answer answer) {
            auto back = [this, answer = std::move(answer)](unsigned status, std::string body) {
                net_loop_.post([answer, status, body = std::move(body)] { answer(status, body); });
            };
            boost::asio::post(io_, [this, source, nonce = std::move(nonce), gone = std::move(gone),
                                    back = std::move(back)]() mutable {
                key_giver_->ask(source, std::move(nonce), std::move(gone), std::move(back));
            });
        };
    }

    /// `daemon` is the one that was reached last.
    [[nodiscard]] std::string death_notice(const std::optional<Endpoint>& daemon) const {
        native::Hello hello;
        hello.job = config_.job;
        hello.node = facts_.identity;
        auto daemons = endpoints_;
        if (daemon) {
            std::erase(daemons, *daemon);
            daemons.insert(daemons.begin(), *daemon);
        }
        return write_death_notice({.daemons = std::move(daemons),
                                   .hello = std::move(hello),
                                   .why = "its agent died",
                                   .keys = config_.keys ? config_.keys(config_.job) : std::vector<std::string>()});
    }

    void on_forgotten(const std::string& job) {
        if (job != config_.job) return;
        forgotten_ = true;
        if (lingers_) io_.stop();
    }

    /// Before all that is waited for at the end: somebody may kill this process meanwhile. A stop signal that ends the
    /// question for a signal's reason comes here without it.
    void report_ending() {
        ignore_late_notices();
        if (const auto report = std::exchange(on_ending_, nullptr)) report(*ending_);
    }

    /// Viewers of the log files get the last lines before the launcher ends. A stop signal ends the wait, or skips it.
    void show_last_lines(RoundStores& stores) {
        if (is_stopping_) return linger();
        last_lines_timer_.expires_after(last_lines_limit);
        last_lines_timer_.async_wait([this](const boost::system::error_code&) { linger(); });
        stores.when_read([this] { last_lines_timer_.cancel(); });
    }

    /// Keeps this node's daemon until the other agents have received the end. Does not wait if this node leaves a job
    /// that continues.
    void linger() {
        lingers_ = true;
        const bool job_is_over =
            std::holds_alternative<agent::JobSucceeded>(*ending_) || std::holds_alternative<agent::JobFailed>(*ending_);
        if (daemon_ == nullptr || forgotten_ || is_stopping_ || !job_is_over) return io_.stop();
        linger_until_ = std::chrono::steady_clock::now() + end_linger;
        check_idle();
    }

    void check_idle() {
        if (daemon_->idle()) {
            if (etcd_) etcd_->job_is_over();
            return io_.stop();
        }
        if (std::chrono::steady_clock::now() >= linger_until_) return io_.stop();
        call_after(idle_timer_, idle_look, [this] { check_idle(); });
    }

    LaunchConfig config_;
    Entry entry_;
    Environment environment_;
    const ServiceUnit& unit_;
    NodeEvents& events_;
    NodeFacts facts_;
    std::vector<Endpoint> endpoints_;  ///< The daemons that the options name, numeric.
    std::size_t first_count_ = 0;      ///< How many of endpoints_ belong to the first daemon.
    std::string daemon_address_;       ///< The address at which the daemon was reached last.
    sigset_t held_signals_{};

    boost::asio::io_context io_{1};
    SignalReason reason_{io_, environment_};
    rendezvous::EventLoop net_loop_;
    const std::shared_ptr<MemoryBudget> net_memory_ = std::make_shared<MemoryBudget>(memory_budget_bytes());
    std::unique_ptr<KeyGiver> key_giver_;  ///< Null: this node gives no key.
    std::unique_ptr<rendezvous::Daemon> embedded_;
    std::unique_ptr<EtcdRendezvous> etcd_;
    std::unique_ptr<rendezvous::MetricsPort> metrics_port_;  ///< Null: none, or it is still taken.
    boost::asio::steady_timer metrics_timer_{io_};
    rendezvous::Daemon* daemon_ = nullptr;  ///< This node's daemon. Null: none.
    rendezvous::Client* link_ = nullptr;
    agent::Agent* agent_ = nullptr;  ///< Within run().
    boost::asio::steady_timer idle_timer_{io_};
    boost::asio::steady_timer last_lines_timer_{io_};
    Instant linger_until_{};
    bool lingers_ = false;
    bool forgotten_ = false;
    boost::asio::signal_set stop_signals_{io_};
    bool is_stopping_ = false;
    std::optional<agent::Ending> ending_;
    OnEnding on_ending_;  ///< Empty: it was called.

    void note_standbys(const native::StandbysSeen& seen) {
        link_->submit(seen);
        standbys_.count = std::max(standbys_.count, seen.count);
        standbys_.memory_bytes = std::max(standbys_.memory_bytes, seen.memory_bytes);
    }

    std::string unsaved_;
    native::StandbysSeen standbys_;
};

NodeRun::NodeRun(LaunchConfig config, Entry entry, Environment environment, const ServiceUnit& unit, NodeEvents& events)
    : body_(std::make_unique<Body>(std::move(config), std::move(entry), std::move(environment), unit, events)) {}

NodeRun::~NodeRun() = default;

std::optional<NotLaunched> NodeRun::run(agent::GuardianHandle guardian, OnEnding on_ending) {
    return body_->run(std::move(guardian), std::move(on_ending));
}

agent::ReportContext NodeRun::report_context() const {
    return body_->report_context();
}

agent::GuardianConfig guardian_config(const LaunchConfig& config, std::shared_ptr<GpuJobMap> gpu_jobs) {
    agent::GuardianConfig guardian;
    guardian.unfed_max = config.lease * 8 / 10;
    guardian.on_agent_death_max = death_notice_limit + 2s;
    guardian.on_agent_death = [metrics = metrics_file(config), gpu_jobs = std::move(gpu_jobs),
                               agent = ::getpid()](std::string_view notice) {
        // All of it is cut off at the limit. The job waits for the notice, which no directory that hangs may hold up.
        deliver_death_notice(notice, death_notice_limit);
        if (!metrics.empty()) agent::MetricsFile::remove(metrics, agent);
        gpu_jobs->release();
    };
    return guardian;
}

}  // namespace muster::launcher
