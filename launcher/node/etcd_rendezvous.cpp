#include "launcher/node/etcd_rendezvous.h"

#include "launcher/node/embedded_daemon.h"
#include "launcher/node/job_access.h"

namespace muster::launcher {

using rendezvous::EtcdState;

Result<std::unique_ptr<EtcdRendezvous>> EtcdRendezvous::open(const LaunchConfig& config, const std::string& host,
                                                             rendezvous::EventLoop& loop, EtcdCallbacks callbacks) {
    std::unique_ptr<EtcdRendezvous> made(new EtcdRendezvous(loop, std::move(callbacks)));
    MUSTER_TRY(config.is_host.value_or(true) ? made->serve(config, host) : made->watch(config));
    return made;
}

EtcdRendezvous::~EtcdRendezvous() {
    loop_.invoke([this] { watched_.reset(); });
}

void EtcdRendezvous::job_is_over() {
    if (state_ != nullptr) state_->sweep_at_end();
}

Result<void> EtcdRendezvous::serve(const LaunchConfig& config, const std::string& host) {
    auto daemon = daemon_config(config, rendezvous::StartHold::until_full, callbacks_.memory);
    daemon.listen.ports = config.daemon_ports;
    if (!serves_other_hosts(config)) daemon.listen.address = "127.0.0.1";
    daemon.listen.local_users = config.local_users;
    daemon.server.keep_records = true;
    daemon.on_job_forgotten = callbacks_.job_forgotten;
    daemon.on_event = callbacks_.on_event;
    daemon.on_standing_by = [this](const std::string& leader) { tell(leader); };
    auto listener = rendezvous::Listener::open(daemon.listen);
    if (!listener) return with_context(listener.error(), "this node's daemon (daemon_port of --rdzv-conf)");
    const Endpoint self{host, (*listener)->port()};
    daemon.on_leading = [this, self] { callbacks_.leader(self, {}); };
    auto state = MUSTER_TRY(open_state(config, describe(self)));
    state_ = state.get();
    daemon_ = MUSTER_TRY(rendezvous::Daemon::open(loop_, std::move(daemon), std::move(state), *std::move(listener)));
    return {};
}

Result<void> EtcdRendezvous::watch(const LaunchConfig& config) {
    auto state = MUSTER_TRY(open_state(config, {}));
    // The callbacks run on the loop, which may be running already: set them where they are read.
    loop_.invoke([&] {
        watched_ = std::move(state);
        watched_->stands_by = [this](const std::string& leader) { tell(leader); };
    });
    return {};
}

Result<std::unique_ptr<EtcdState>> EtcdRendezvous::open_state(const LaunchConfig& config, std::string self) {
    auto place = *config.etcd;
    // Of the job, and not of the secret: some nodes may have the key of this job only.
    place.record_keys = rendezvous::record_keys(config.keys, config.job);
    auto state = EtcdState::open(std::move(place), std::move(self),
                                 [this](std::function<void()> work) { loop_.post(std::move(work)); });
    if (!state) return with_context(state.error(), "etcd (--rdzv-conf)");
    (*state)->remarks = [this](std::string line) { callbacks_.leader({}, std::move(line)); };
    return state;
}

void EtcdRendezvous::tell(const std::string& leader) const {
    const auto place = parse_endpoint(leader, 0);
    if (leader.empty() || !place || place->port == 0)
        callbacks_.leader({}, "no daemon of this job is the leader now");
    else
        callbacks_.leader(*place, {});
}

}  // namespace muster::launcher
