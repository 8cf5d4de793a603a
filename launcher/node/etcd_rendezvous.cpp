#include "launcher/node/etcd_rendezvous.h"

#include <chrono>
#include <utility>

#include "launcher/node/job_access.h"
#include "rendezvous/base/try.h"
#include "rendezvous/secret/job_secret.h"
#include "rendezvous/state/etcd/etcd_state.h"

namespace muster::launcher {

using rendezvous::EtcdState;

class EtcdRendezvous::Body {
  public:
    Body(rendezvous::EventLoop& loop, EtcdCallbacks callbacks) : loop_(loop), callbacks_(std::move(callbacks)) {}

    Result<void> host(const LaunchConfig& config, const std::string& host) {
        auto daemon = daemon_config(config);
        auto listener = rendezvous::Listener::open(daemon.listen);
        if (!listener) return with_context(listener.error(), "this node's daemon (daemon_port of --rdzv-conf)");
        const Endpoint self{host, (*listener)->port()};
        daemon.on_leading = [this, self] { callbacks_.leader(self, {}); };
        auto state = MUSTER_TRY(open_state(config, describe(self)));
        state_ = state.get();
        daemon_ =
            MUSTER_TRY(rendezvous::Daemon::open(loop_, std::move(daemon), std::move(state), *std::move(listener)));
        return {};
    }

    Result<void> look(const LaunchConfig& config) {
        auto state = MUSTER_TRY(open_state(config, {}));
        // The callbacks run on the loop, which may be running already: set them where they are read.
        loop_.invoke([&] {
            watched_ = std::move(state);
            watched_->stands_by = [this](const std::string& leader) { told(leader); };
        });
        return {};
    }

    ~Body() {
        loop_.invoke([this] { watched_.reset(); });
    }

    [[nodiscard]] rendezvous::Daemon* daemon() const { return daemon_.get(); }
    void job_is_over() {
        if (state_ != nullptr) state_->sweep_at_end();
    }

  private:
    Result<std::unique_ptr<EtcdState>> open_state(const LaunchConfig& config, std::string self) {
        auto place = *config.etcd;
        // Of the job, and not of the secret: some nodes may have the key of this job only.
        place.record_keys = rendezvous::record_keys(config.keys, config.job);
        auto state = EtcdState::open(std::move(place), std::move(self),
                                     [this](std::function<void()> work) { loop_.post(std::move(work)); });
        if (!state) return with_context(state.error(), "etcd (--rdzv-conf)");
        (*state)->remarks = [this](std::string line) { callbacks_.leader({}, std::move(line)); };
        return state;
    }

    rendezvous::DaemonConfig daemon_config(const LaunchConfig& config) {
        rendezvous::DaemonConfig daemon;
        daemon.listen.ports = config.daemon_ports;
        if (!serves_other_hosts(config)) daemon.listen.address = "127.0.0.1";
        daemon.listen.local_users = config.local_users;
        daemon.listen.sources = config.allow_from;
        daemon.has_page = !config.no_web;
        daemon.server.start_hold = rendezvous::StartHold::until_full;
        daemon.server.keep_records = true;
        daemon.server.allow_faults = config.allow_faults;
        daemon.server.to_wall_clock =
            std::chrono::system_clock::now().time_since_epoch() - std::chrono::steady_clock::now().time_since_epoch();
        daemon.keys = config.keys;
        daemon.server.authentication = authentication(config);
        daemon.server.secret_seed = rendezvous::random_nonce();
        daemon.on_job_forgotten = callbacks_.job_forgotten;
        daemon.on_event = callbacks_.on_event;
        daemon.on_standing_by = [this](const std::string& leader) { told(leader); };
        return daemon;
    }

    void told(const std::string& leader) {
        const auto place = parse_endpoint(leader, 0);
        if (leader.empty() || !place || place->port == 0)
            callbacks_.leader({}, "no daemon of this job is the leader now");
        else
            callbacks_.leader(*place, {});
    }

    rendezvous::EventLoop& loop_;
    const EtcdCallbacks callbacks_;
    std::unique_ptr<rendezvous::Daemon> daemon_;
    EtcdState* state_ = nullptr;  // owned by daemon_
    std::unique_ptr<EtcdState> watched_;
};

EtcdRendezvous::EtcdRendezvous(std::unique_ptr<Body> body) : body_(std::move(body)) {}
EtcdRendezvous::~EtcdRendezvous() = default;

Result<std::unique_ptr<EtcdRendezvous>> EtcdRendezvous::open(const LaunchConfig& config, const std::string& host,
                                                             rendezvous::EventLoop& loop, EtcdCallbacks callbacks) {
    auto body = std::make_unique<Body>(loop, std::move(callbacks));
    MUSTER_TRY(config.is_host.value_or(true) ? body->host(config, host) : body->look(config));
    return std::unique_ptr<EtcdRendezvous>(new EtcdRendezvous(std::move(body)));
}

void EtcdRendezvous::job_is_over() {
    body_->job_is_over();
}

rendezvous::Daemon* EtcdRendezvous::daemon() const {
    return body_->daemon();
}

}  // namespace muster::launcher
