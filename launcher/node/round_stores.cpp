#include "launcher/node/round_stores.h"

#include "launcher/commands/job_stacks.h"
#include "launcher/commands/log_query.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/secret/job_key.h"

namespace muster::launcher {

RoundStores::RoundStores(const LaunchConfig& config, Plumbing plumbing)
    : plumbing_(std::move(plumbing)), logs_(plumbing_.loop, config.job) {
    probes_ = config.backend == Backend::c10d && !config.share_store;
    serves_workers_ = config.backend == Backend::c10d && config.share_store;
    // If the other nodes reach this one only at a loopback address, all clients run on this host.
    const auto& addresses = plumbing_.addresses;
    const bool is_private = addresses.size() == 1 && is_loopback(addresses.front());
    if (config.standalone || is_private) listen_.address = config.standalone ? "127.0.0.1" : addresses.front();
    if (serves_workers_) listen_.ports = config.store_ports;
    listen_.local_users = config.local_users;
    listen_.sources = config.allow_from;
    is_open_ = config.insecure;
    relays_ = config.store_relay;
    has_door_ = config.store_door;
    if (config.keys)
        for (const auto& key : config.keys(config.job)) logs_keys_.push_back(rendezvous::logs_key(key));
    if (is_open_) logs_.serve_all();
}

Result<agent::RoundPorts> RoundStores::open() {
    rendezvous::RoundStoreConfig config;
    config.listen = listen_;
    config.limits.memory = plumbing_.memory;
    config.answer = plumbing_.answer;
    config.post = plumbing_.post;
    config.waits = !is_open_;
    logs_.begin_round(plumbing_.log_folder ? plumbing_.log_folder() : std::string());
    config.logs = {
        .keys = logs_keys_,
        .streams = [this](const auto& request, auto& connection) { return logs_.begin(request, connection); },
        .late = [this](const auto& request, const auto& asker, auto gone,
                       auto answer) { return tell_stacks(request, asker, std::move(gone), std::move(answer)); },
        .pages = [this](const auto& request, Instant) { return logs_.answer(request); }};
    store_ = MUSTER_TRY(rendezvous::RoundStore::open(plumbing_.loop, std::move(config)));
    agent::RoundPorts ports{.store = serves_workers_ ? store_->port() : std::uint16_t{0}, .peer = store_->port()};
    // Anew for each round: an interface may have come or got another address.
    for (const auto& own : known_elsewhere(list_own_addresses()))
        if (!own.is_loopback) ports.sources.push_back(own.address.numeric());
    // The port of a node without a store is for questions alone, also between rounds.
    if (!serves_workers_)
        if (auto serving = store_->serve({.store = false, .clients = {}}); !serving) return serving.error();
    if (probes_) {
        // The port is closed again at once. Another process may take it before the worker binds it; the default, the
        // agent's own store, avoids this race.
        ports.store = MUSTER_TRY(rendezvous::Listener::open({}))->port();
    }
    return ports;
}

bool RoundStores::tell_stacks(const rendezvous::HttpRequest& request, const rendezvous::Connection& asker,
                              rendezvous::AskerGone gone, std::function<void(rendezvous::HttpPage)> answer) {
    if (!request.target.starts_with(cat(stacks_path, '?')) || !logs_.may_read(request, asker)) return false;
    const auto wish = rendezvous::query_value(request.target, "ranks");
    auto ranks = wish ? read_ranks(*wish) : std::nullopt;
    if (wish && !ranks) return false;
    plumbing_.post([this, ranks = std::move(ranks), gone = std::move(gone), answer = std::move(answer)] {
        if (*gone) return;
        plumbing_.stacks(ranks, [answer, &loop = plumbing_.loop](std::string text) {
            loop.post([answer, page = rendezvous::HttpPage{.body = std::move(text)}] { answer(page); });
        });
    });
    return true;
}

void RoundStores::serve(const native::Assigned& assigned) {
    if (!store_ || !serves_workers_) return;
    const bool is_store = assigned.group_rank == 0;
    // A daemon without the job's key gives no secret; then no other host can prove anything.
    if (has_door_)
        key_ = rendezvous::derived_key(assigned.secret.empty() ? random_bytes(32) : assigned.secret, "store");
    if (const auto serving = store_->serve({.store = is_store, .clients = assigned.store_clients, .key = key_});
        !serving)
        log(LogLevel::error, serving.error().context);
}

Result<std::optional<Endpoint>> RoundStores::relay(const Endpoint& store) {
    const std::optional<Endpoint> itself;
    if (!relays_) return itself;
    rendezvous::StoreRelayConfig config;
    config.store = store;
    config.limits.memory = plumbing_.memory;
    config.key = key_;
    config.local_users = listen_.local_users;
    auto opened = rendezvous::StoreRelay::open(plumbing_.loop, config);
    if (!opened && has_door_) return with_context(opened.error(), "the closed workers' store");
    if (!opened) {
        log(LogLevel::warning, "--store-relay: ", opened.error().context, "; the workers connect to the store itself");
        return itself;
    }
    relay_ = std::move(*opened);
    return std::optional<Endpoint>(Endpoint{"127.0.0.1", relay_->port()});
}

void RoundStores::close() {
    relay_.reset();
    if (!store_) return;
    logs_.end_round(plumbing_.kept_logs ? plumbing_.kept_logs() : std::vector<std::string>());
    // A store without viewers, such as that of a join that was cancelled, leaves those of the last round their store.
    if (store_->retire())
        last_ = std::move(store_);
    else
        store_.reset();
}

void RoundStores::when_read(std::function<void()> done) {
    if (!last_) return done();
    last_->when_read([post = plumbing_.post, done = std::move(done)] { post(done); });
}

}  // namespace muster::launcher
