#include "rendezvous/servers/daemon.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/kernel/open_files.h"
#include "rendezvous/base/text/percent.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/dialects/agent_dialect.h"
#include "rendezvous/dialects/http_dialect.h"
#include "rendezvous/dialects/job_metrics.h"
#include "rendezvous/dialects/metrics_answer.h"
#include "rendezvous/dialects/store_dialect.h"
#include "rendezvous/net/station.h"
#include "rendezvous/page/page_files.h"
#include "rendezvous/page/viewers.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/servers/process_metrics.h"

namespace muster::rendezvous {

namespace {

/// Jobs of torchrun agents noted within one turn. Agents beyond the maximum connect again.
constexpr std::size_t torchrun_max = 64;

ServerConfig server_of(const DaemonConfig& config) {
    auto server = config.server;
    server.secret = control_hashes(config.keys);
    server.connections_max = config.limits.connections_max;
    server.other_descriptors = descriptors_kept;
    return server;
}

std::shared_ptr<const PskContext> tls_with(const JobKeys& keys) {
    if (!keys) return nullptr;
    return PskContext::server([keys](std::string_view identity) {
        return job_of_identity(identity).empty() ? find_status_key(keys, identity) : find_control_key(keys, identity);
    });
}

HttpDialect::LatePages key_pages(KeyQuestion question) {
    if (!question) return {};
    return [question = std::move(question)](const HttpRequest& request, const Connection& asker, AskerGone gone,
                                            std::function<void(HttpPage)> answer) {
        constexpr std::string_view asked = "/key?nonce=";
        if (request.method != "GET" || !request.target.starts_with(asked)) return false;
        question(asker.peer(), request.target.substr(asked.size()), std::move(gone),
                 [answer = std::move(answer)](unsigned status, std::string body) {
                     answer({.status = status, .body = std::move(body)});
                 });
        return true;
    };
}

/// What every peer may see: nothing of a job.
bool is_public(std::string_view path) {
    return path == "/healthz" || path == "/key" || find_page_file(path) != nullptr;
}

std::int64_t wall_clock_ms() {
    return std::chrono::system_clock::now().time_since_epoch() / 1ms;
}

}  // namespace

class Daemon::Implementation final : EventLoop::Ticker {
  public:
    Implementation(EventLoop& loop, std::unique_ptr<Listener> listener, DaemonConfig config,
                   std::unique_ptr<StateStore> state)
        : loop_(loop),
          started_(std::chrono::steady_clock::now()),
          on_job_forgotten_(std::move(config.on_job_forgotten)),
          has_page_(config.has_page),
          memory_(config.limits.memory_of_port()),
          store_(store_config_of(config.limits)),
          events_(std::move(config.on_event)),
          agents_(server_of(config), std::move(state), std::move(config.kept),
                  {.fresh_store = [this](const FreshStore& fresh) { refresh(fresh); },
                   .job_forgotten = [this](const std::string& job) { forgotten(job); },
                   .leading = std::move(config.on_leading),
                   .standing_by = std::move(config.on_standing_by),
                   .events = [this](const std::vector<Event>& happened, Instant at) { events_.take(happened, at); }},
                  started_),
          viewers_({.daemon = [this](Instant now) { return daemon_facts(now); },
                    .jobs = [this](Instant now) { return agents_.summaries(now); },
                    .job = [this](const std::string& job, Instant now,
                                  SeenNodes& seen) { return agents_.job_pieces(job, now, seen); },
                    .events = [this](const std::string& job, const EventPosition& after,
                                     std::size_t bytes_max) { return events_.since(job, after, bytes_max); },
                    .wall_clock_ms = wall_clock_ms},
                   [this](const HttpRequest& request, const Connection& connection) {
                       return pages_.may_see(request, connection);
                   }),
          pages_(
              [this](const HttpRequest& request, Instant now) { return page(request, now); },
              {.names = std::move(config.status_hosts),
               .keys = config.keys,
               .has_key = [keys = config.keys](
                              std::string_view identity) { return keys && !find_status_key(keys, identity).empty(); },
               .is_public = is_public},
              key_pages(std::move(config.on_key_question)),
              [this](const HttpRequest& request, Connection& connection) {
                  return has_page_ ? viewers_.begin(request, connection) : nullptr;
              }),
          sources_(config.listen.sources),
          endpoint_{.host = listener->address(), .port = listener->port()},
          station_(loop, std::move(listener),
                   {.c10d = &store_, .http = &pages_, .native = &agents_, .tls = tls_with(config.keys)}, config.limits,
                   memory_) {
        if (config.keys)
            store_.serve_only(
                [this](const Connection& from) { return may_use_store(from); },
                "it is no address of a node whose round has its store here. If a node of such a job has it (NAT), or "
                "torchrun runs there, give --allow-from the networks of all nodes");
        store_.attach(station_);
        agents_.attach(station_);
        pages_.attach(station_);
        viewers_.attach(station_);
        loop_.add(*this);
    }
    Result<void> start(std::vector<std::unique_ptr<Listener>> more) {
        auto started = station_.start();
        for (auto& listener : more)
            if (started) started = station_.listen_also(std::move(listener));
        return started;
    }
    ~Implementation() override {
        agents_.shut_down();
        loop_.remove(*this);
    }

    [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
    [[nodiscard]] std::size_t agent_count() const { return station_.count(agents_); }
    [[nodiscard]] std::vector<std::string> reached_at() const { return agents_.reached_at(); }
    [[nodiscard]] std::string status_json() const { return agents_.status_json(std::chrono::steady_clock::now()); }

    [[nodiscard]] std::string state_trouble() const {
        const auto& stall = agents_.state_stall();
        return stall ? cat("the state cannot be written: ", stall->why) : std::string();
    }

    Instant turn(Instant now) override {
        for (const auto& [job, peer] : std::exchange(torchrun_, {})) agents_.torchrun_connected(job, peer, now);
        return std::min({store_.turn(now), agents_.turn(now), viewers_.turn(now)});
    }

  private:
    /// The step that follows may clear the store, which is busy during this call; so it runs in the next turn.
    StoreConfig store_config_of(const NetLimits& limits) {
        auto config = store_config(limits, memory_);
        config.on_torchrun = [this](const std::string& job, const std::string& source) {
            if (torchrun_.size() < torchrun_max) torchrun_[job] = source;
        };
        return config;
    }

    /// The store on this port is the workers' of a static job.
    void refresh(const FreshStore& fresh) {
        AddressSet& clients = clients_of_[fresh.job] = {};
        for (const auto& address : fresh.clients) clients.add(address);
        store_.clear(cat("a new round of job ", fresh.job));
    }

    /// With a secret, nobody comes to the store who is no node of a job that uses it.
    [[nodiscard]] bool may_use_store(const Connection& connection) {
        const auto is_client = [&](const auto& one) { return one.second.contains(connection.peer()); };
        return connection.is_own() || (sources_ && sources_->addresses.contains(connection.peer())) ||
               std::ranges::any_of(clients_of_, is_client) || own_addresses_.contains(connection.peer());
    }

    void forgotten(const std::string& job) {
        clients_of_.erase(job);
        if (on_job_forgotten_) on_job_forgotten_(job);
    }

    std::optional<HttpPage> page(const HttpRequest& request, Instant now) const {
        if (auto found = events_.page(request.target)) return found;
        const auto path = std::string_view(request.target).substr(0, request.target.find('?'));
        if (const auto job = job_in_target(request.target, "/agents")) return agents(*job, now);
        if (path == "/healthz") return health();
        if (!has_page_ && (path == Viewers::path || find_page_file(path) != nullptr))
            return HttpPage{.status = 404, .body = "The page is switched off (--no-web). Use muster status.\n"};
        if (path == Viewers::path) return viewers_.answer(request);
        if (const auto* file = find_page_file(path))
            return HttpPage{.type = file->type, .body = std::string(file->bytes)};
        if (path == "/status") return HttpPage{.type = "application/json", .body = agents_.status_json(now) + "\n"};
        if (path == "/metrics")
            return metrics_answer(request, [&](MetricsFormat format) { return metrics(format, now); });
        return std::nullopt;
    }

    /// Where viewers of a job's log files find its agents.
    [[nodiscard]] HttpPage agents(std::string_view encoded_job, Instant now) const {
        // Another daemon has the jobs, so this one must not say that there is none.
        if (!agents_.leads())
            return HttpPage{.status = 503, .body = "This daemon does not lead. Ask the one that leads.\n"};
        const auto job = percent_decoded(encoded_job);
        auto found = job ? agents_.agents_json(*job, now) : std::nullopt;
        if (!found) return HttpPage{.status = 404, .body = "This daemon has no such job. /status lists its jobs.\n"};
        return HttpPage{.type = "application/json", .body = *std::move(found) + "\n"};
    }

    /// What the page shows of the daemon itself.
    [[nodiscard]] std::string daemon_facts(Instant now) const {
        auto facts = nlohmann::json::parse(agents_.daemon_json(now));
        facts.erase("jobs");
        facts["version"] = MUSTER_VERSION;
        facts["host"] = host_;
        facts["started_ms"] = started_ms_;
        facts["viewers"] = viewers_.count();
        facts["viewers_max"] = Viewers::viewers_max;
        return facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }

    [[nodiscard]] HttpPage health() const {
        const auto trouble = state_trouble();
        if (trouble.empty()) return HttpPage{.body = "ok\n"};
        return HttpPage{.status = 503, .body = cat(trouble, "\n")};
    }

    [[nodiscard]] std::string metrics(MetricsFormat format, Instant now) const {
        using enum MetricKind;
        MetricsPage page(format);
        page.family("muster_build_info", info, "1, with the version of musterd.");
        page.add(1, {{"version", MUSTER_VERSION}});
        add_process_metrics(page);
        add_port_metrics(page, now);
        const auto jobs = agents_.summaries(now);
        add_turn_metrics(page, jobs);
        add_job_metrics(page, jobs);
        return page.finish();
    }

    void add_port_metrics(MetricsPage& page, Instant now) const {
        using enum MetricKind;
        const StationCounts counts = station_.counts();
        const StoreUsage usage = store_.usage();
        page.add_one("muster_uptime_seconds", gauge, "Time since the daemon started.",
                     std::chrono::duration<double>(now - started_).count());
        page.add_one("muster_connections", gauge, "Open connections of all kinds.", counts.open);
        page.add_one("muster_agents", gauge, "Connections of agents.", station_.count(agents_));
        page.add_one("muster_connections_accepted_total", counter, "Connections accepted.", counts.accepted);
        page.add_one("muster_connections_refused_total", counter, "Connections closed because they broke a rule.",
                     counts.refused);
        page.add_one("muster_unsent_bytes", gauge, "Bytes queued for peers.", counts.unsent_bytes);
        page.add_one("muster_memory_bytes", gauge, "Memory that peers make the daemon's process hold.",
                     memory_->bytes());
        page.add_one("muster_memory_bytes_max", gauge, "The limit of muster_memory_bytes.", memory_->bytes_max());
        page.add_one("muster_agent_messages_total", counter, "Messages from agents.", agents_.message_count());
        page.add_one("muster_unpersisted_steps", gauge, "Steps that wait until the state is written.",
                     agents_.unpersisted_count());
        page.add_one("muster_state_stalled", gauge, "1 while the state cannot be written.",
                     agents_.state_stall().has_value());
        page.add_one("muster_store_keys", gauge, "Keys with a value in the store.", usage.key_count);
        page.add_one("muster_store_bytes", gauge, "Memory used by the store.", usage.bytes);
        page.add_one("muster_store_waits", gauge, "Clients waiting for keys of the store.", usage.wait_count);
    }

    /// How this daemon keeps up with its work.
    void add_turn_metrics(MetricsPage& page, const std::vector<JobSummary>& jobs) const {
        using enum MetricKind;
        const auto add = [&page](std::string_view name, std::string_view help, const TimeHistogram& times) {
            page.family(name, histogram, help);
            page.add_histogram(TimeHistogram::bounds, times.counts(), times.sum_seconds());
        };
        add("muster_loop_turn_seconds", "Turns of the daemon's one loop, without waits.", loop_.turn_times());
        add("muster_state_write_seconds", "Writes of the state, each with its wait.", agents_.write_times());
        add("muster_heartbeat_late_seconds", "How much later than its pace each heartbeat came.",
            agents_.heartbeat_lateness());
        page.add_one("muster_leader", gauge, "1 if this daemon leads, 0 if it stands by.", agents_.leads());
        page.add_one("muster_leader_changes_total", counter, "Changes of the leader that this daemon has seen.",
                     agents_.leader_change_count());
        Duration silence{};
        for (const auto& job : jobs) silence = std::max(silence, job.silence_max);
        page.add_one("muster_agent_silence_max_seconds", gauge, "Time since the agent that was heard longest ago.",
                     std::chrono::duration<double>(silence).count());
    }

    EventLoop& loop_;
    const Instant started_;
    const std::int64_t started_ms_ = wall_clock_ms();
    const std::string host_ = host_name();
    std::function<void(const std::string& job)> on_job_forgotten_;
    const bool has_page_;
    std::map<std::string, std::string> torchrun_;  ///< torchrun agents seen since the last turn: job, address
    const std::shared_ptr<MemoryBudget> memory_;
    StoreDialect store_;
    EventTap events_;
    AgentDialect agents_;
    Viewers viewers_;
    HttpDialect pages_;
    const std::shared_ptr<const AllowedSources> sources_;
    std::map<std::string, AddressSet> clients_of_;  ///< of the static jobs, whose workers use this port's store
    OwnAddresses own_addresses_;
    const Endpoint endpoint_;
    Station station_;  // last: its destructor ends sessions of the above
};

Daemon::Daemon(EventLoop& loop) : loop_(loop) {}

Result<std::unique_ptr<Daemon>> Daemon::open(EventLoop& loop, DaemonConfig config, std::unique_ptr<StateStore> state,
                                             std::unique_ptr<Listener> listener,
                                             std::vector<std::unique_ptr<Listener>> more) {
    if (!listener) listener = MUSTER_TRY(Listener::open(config.listen));
    if (!state) state = std::make_unique<MemoryState>();
    auto daemon = std::unique_ptr<Daemon>(new Daemon(loop));
    const auto serving = loop.ask([&] {
        daemon->implementation_ =
            std::make_unique<Implementation>(loop, std::move(listener), std::move(config), std::move(state));
        return daemon->implementation_->start(std::move(more));
    });
    if (!serving) return with_context(serving.error(), "rendezvous daemon");
    return daemon;
}

Daemon::~Daemon() {
    loop_.invoke([&] { implementation_.reset(); });
}

std::uint16_t Daemon::port() const {
    return implementation_->endpoint().port;
}

std::string Daemon::address() const {
    return describe(implementation_->endpoint());
}

std::string Daemon::status_json() const {
    return loop_.ask([&] { return implementation_->status_json(); });
}

std::string Daemon::state_trouble() const {
    return loop_.ask([&] { return implementation_->state_trouble(); });
}

std::size_t Daemon::agent_count() const {
    return loop_.ask([&] { return implementation_->agent_count(); });
}

std::vector<std::string> Daemon::reached_at() const {
    return loop_.ask([&] { return implementation_->reached_at(); });
}

bool Daemon::idle() const {
    return agent_count() == 0;
}

}  // namespace muster::rendezvous
