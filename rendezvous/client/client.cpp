#include "rendezvous/client/client.h"

#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/sockets/tcp_options.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/client/connector.h"
#include "rendezvous/client/link.h"
#include "rendezvous/client/peer_query.h"
#include "rendezvous/client/store_probe.h"
#include "rendezvous/client/tls_handshake.h"
#include "rendezvous/connect/resolver.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// A look-up that is given up begins anew: so it has the time that the C library takes where several name servers are
// dead.
constexpr Duration resolve_timeout = 30s;
// Of a flush's limit, where another daemon may have to be found first: etcd's lease is given up at once by a daemon
// that ends in order, and the next one asks five times a second.
constexpr int takeover_limits = 5;
// Each was silent for half a lease, so no more of them can matter.
constexpr std::size_t older_max = 4;

Instant now() {
    return std::chrono::steady_clock::now();
}

}  // namespace

class Client::Implementation : public std::enable_shared_from_this<Implementation> {
  public:
    Implementation(asio::io_context& io, ClientConfig config, RendezvousLink& callbacks)
        : io_(io),
          config_(std::move(config)),
          callbacks_(callbacks),
          core_(config_),
          resolver_(io),
          timer_(io),
          flush_timer_(io),
          cut_timer_(io),
          cut_attempt_(io) {
        use_tls(config_.key);
        for (const auto& key : config_.older_keys) use_tls(key);
        if (!config_.known_addresses.empty()) known_[config_.endpoint.host] = config_.known_addresses;
    }

    ClientCore& core() { return core_; }
    [[nodiscard]] bool is_cut_off() const { return now() < cut_until_; }

    void cut_off(Duration length) {
        cut_until_ = now() + length;
        cut_timer_.expires_at(cut_until_);
        cut_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
            if (!stopped && !self->stopped_) self->reconnected();
        });
    }

    void carry_out(std::vector<ClientOutput> outputs) {
        for (auto& output : outputs) {
            std::visit([this](auto& one) { carry_out(one); }, output);
        }
        arm_timer();
    }

    void flush(Duration limit, std::function<void()> done) {
        flushed_ = std::move(done);
        // Another daemon may take over: all nodes are stopped together, and the one that led went first.
        const bool waits = has_choice() && !core_.has_sent_all();
        flush_timer_.expires_after(has_choice() ? limit * takeover_limits : limit);
        flush_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
            if (!stopped) self->finish_flush();
        });
        if (!socket_ && !waits) return finish_flush();
        if (socket_ && !writing_ && core_.has_sent_all()) half_close();
    }

    void stop() {
        stopped_ = true;
        flushed_ = nullptr;
        timer_.cancel();
        flush_timer_.cancel();
        cut_timer_.cancel();
        carry_out(Abandon{});
        resolver_.stop();
        cut_until_ = Instant::min();
        ended_unacknowledged_.clear();
        close();
        carry_out(DropOlder{});
    }

  private:
    void step(const ClientInput& input) {
        if (!stopped_) carry_out(core_.step(input, now()));
    }

    void carry_out(const Connect&) {
        carry_out(Abandon{});
        if (is_cut_off()) return fail_to_connect();
        const auto& endpoint = core_.endpoint();
        connector_ = Connector::start(io_, resolver_, {to_try(endpoint), endpoint.port},
                                      {.resolve = resolve_timeout, .attempt = config_.connect_timeout},
                                      [self = shared_from_this(), name = endpoint.host](Result<tcp::socket> socket) {
                                          self->connected(name, std::move(socket));
                                      });
    }
    void carry_out(const Disconnect& ordered) {
        if (ordered.is_wrong_peer && socket_) doubt_address(socket_->name, socket_->remote);
        carry_out(Abandon{});
        close();
    }
    void carry_out(const Abandon&) {
        if (connector_) std::exchange(connector_, nullptr)->cancel();
        if (handshake_) std::exchange(handshake_, nullptr)->cancel();
        cut_attempt_.cancel();
    }
    void carry_out(const DropOlder&) {
        for (const auto& link : std::exchange(older_, {})) link->close();
    }
    void carry_out(const Send& send) {
        // The core sends again what still matters after a reconnect; behind our end nothing more goes out.
        if (!socket_ || socket_->half_closed) return;
        native::append_frame(socket_->queued, send.message);
        // Posted: everything that one event causes leaves in one write.
        if (writing_) return;
        writing_ = true;
        asio::post(io_, [self = shared_from_this(), link = socket_] { self->write(link); });
    }
    void carry_out(QueryPeer& ask) {
        if (is_cut_off()) return leave_unanswered(ask);
        query_peer(io_, resolver_, answering_, ask,
                   [self = shared_from_this(), number = ask.ask.number](std::optional<native::PeerAnswer> answer) {
                       self->step(PeerAnswered{.number = number, .answer = std::move(answer)});
                   });
    }
    void carry_out(Deliver& deliver) { tell(callbacks_.on_message, std::move(deliver.message)); }
    void carry_out(Fenced& fenced) { tell(callbacks_.on_fenced, std::move(fenced.why)); }
    void carry_out(RendezvousLost& lost) { tell(callbacks_.on_lost, std::move(lost.why)); }
    void carry_out(Progress& progress) { tell(callbacks_.on_progress, std::move(progress.line)); }

    // Posted, so that no callback comes from inside a verb; looked up again when its turn has come.
    template <class Value>
    void tell(std::function<void(Value)>& callback, Value value) {
        asio::post(io_, [self = shared_from_this(), &callback, value = std::move(value)]() mutable {
            if (!self->stopped_ && callback) callback(std::move(value));
        });
    }

    void use_tls(const ClientKey& key) {
        tls_.push_back(key.tls_key.empty() ? nullptr : PskContext::client(key.tls_identity, key.tls_key));
    }

    void connected(const std::string& name, Result<tcp::socket> socket) {
        connector_ = nullptr;
        if (stopped_) return;
        if (!socket) {
            wrong_peers_.clear();
            if (known_.contains(name)) look_up_again(name);
            return step(ConnectionFailed{.tried = socket.error().context});
        }
        boost::system::error_code gone;
        const auto end = socket->remote_endpoint(gone);
        if (gone) return step(ConnectionFailed{.tried = gone.message()});
        const Endpoint remote{end.address().to_string(), end.port()};
        known_.try_emplace(name, remote.host);
        // A dead path is given up in time for another try within the lease.
        tune_stream(socket->native_handle(), std::max<Duration>(config_.lease, 1s));
        tune_thin_stream(socket->native_handle());
        tell(callbacks_.on_connected, remote);
        const auto& tls = tls_[core_.key_at()];
        if (!tls || (is_loopback(remote.host) && !config_.tls_on_loopback))
            return opened(std::make_shared<Link>(std::move(*socket), nullptr, name, remote));
        handshake_ = TlsHandshake::start(io_, std::move(*socket), tls,
                                         [self = shared_from_this(), name, remote](TlsHandshake::Outcome outcome) {
                                             self->shaken(name, remote, std::move(outcome));
                                         });
    }

    void opened(std::shared_ptr<Link> link) {
        if (is_cut_off()) return fail_to_connect();
        keep_older();
        socket_ = std::move(link);
        writing_ = false;
        read(socket_);
        step(ConnectionOpened{.address = socket_->remote.host, .is_proven = socket_->tls != nullptr});
    }

    void shaken(const std::string& name, const Endpoint& remote, TlsHandshake::Outcome outcome) {
        handshake_ = nullptr;
        if (outcome.channel->state() == PskChannel::State::open)
            return opened(std::make_shared<Link>(std::move(outcome.socket), std::move(outcome.channel), name, remote));
        doubt_address(name, remote);
        auto failed = judge_handshake(*outcome.channel, outcome.why, remote.host);
        if (failed.reached == ConnectionFailed::Reached::stranger) ask_store_at(remote);
        step(std::move(failed));
    }

    /// The addresses known for it, without those at which a stranger has answered; with them where no other is left.
    std::string to_try(const Endpoint& endpoint) {
        const auto known = known_.find(endpoint.host);
        if (known == known_.end()) return endpoint.host;
        std::vector<std::string> addresses;
        for (const auto one : split(known->second, ','))
            if (!wrong_peers_.contains({std::string(one), endpoint.port})) addresses.emplace_back(one);
        if (addresses.empty()) wrong_peers_.clear();
        return addresses.empty() ? known->second : muster::join(addresses, ",");
    }

    /// Whoever answers there is not the job's daemon: the name may have moved, and the address be another host's.
    void doubt_address(const std::string& name, const Endpoint& remote) {
        wrong_peers_.insert({remote.host, remote.port});
        look_up_again(name);
    }

    /// Its addresses did not answer, or a stranger did: they may have changed. A slow name service holds up no try:
    /// those that are known are tried until it has answered.
    void look_up_again(const std::string& name) {
        if (!asked_again_.insert(name).second) return;
        resolver_.resolve({name, 0}, [self = shared_from_this(), name](Result<Resolver::Addresses> found) {
            self->asked_again_.erase(name);
            if (!found) return;
            std::vector<std::string> addresses;
            for (const auto& one : *found) addresses.push_back(one.address().to_string());
            // What was handed to us may be surer than what the name leads to.
            const auto& config = self->config_;
            if (name == config.endpoint.host && !config.known_addresses.empty())
                addresses.push_back(config.known_addresses);
            self->known_[name] = muster::join(addresses, ",");
        });
    }

    void read(const std::shared_ptr<Link>& link) {
        link->socket.async_read_some(
            asio::buffer(link->input),
            [self = shared_from_this(), link](const boost::system::error_code& failure, std::size_t count) {
                if (self->socket_ != link) return;
                const auto why = failure ? failure.message() : link->take(count);
                if (self->is_cut_off()) {
                    link->held = ConnectionClosed{.why = why};
                    return;
                }
                if (!failure) self->take_messages(link);
                if (self->socket_ != link) return;
                if (why.empty()) return self->read(link);
                if (failure != asio::error::eof || !link->heard_to_the_end || !link->has_ended()) self->resend_leave();
                self->lost({.why = why});
            });
    }

    void take_messages(const std::shared_ptr<Link>& link) {
        while (socket_ == link) {
            auto message = link->reader.next();
            if (!message) return lost({.why = message.error().context, .foreign = true});
            if (!*message) return;
            heard_ = true;
            step(MessageReceived{.message = std::move(**message)});
        }
    }

    /// What a silent network does to it: no answer, after the usual time.
    void fail_to_connect() {
        cut_attempt_.expires_after(config_.connect_timeout);
        cut_attempt_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
            if (!stopped && !self->stopped_) self->step(ConnectionFailed{.tried = "cut off by muster fault"});
        });
    }

    /// The cut is over: what stood still goes on.
    void reconnected() {
        ended_unacknowledged_.clear();
        const auto link = socket_;
        if (!link) return;
        if (std::exchange(link->write_held, false)) write(link);
        if (!link->held) return;
        const auto held = *std::exchange(link->held, std::nullopt);
        take_messages(link);
        if (socket_ != link) return;
        if (!held.why.empty()) return lost(held);
        read(link);
    }

    void write(const std::shared_ptr<Link>& link) {
        if (socket_ != link) return;
        if (is_cut_off()) {
            link->write_held = true;
            return;
        }
        link->begin_writing();
        asio::async_write(link->socket, asio::buffer(link->writing),
                          [self = shared_from_this(), link](const boost::system::error_code& failure, std::size_t) {
                              if (self->socket_ != link) return;
                              if (failure) {
                                  self->resend_leave();
                                  return self->lost({.why = failure.message()});
                              }
                              if (!link->queued.empty()) return self->write(link);
                              self->writing_ = false;
                              if (self->flushed_ && self->core_.has_sent_all()) self->half_close();
                          });
    }

    // The daemon closes its side when it has read all up to our end: so its end, unless it was there first, means that.
    void half_close() {
        pollfd far_end{socket_->socket.native_handle(), POLLRDHUP, 0};
        socket_->half_closed = true;
        socket_->heard_to_the_end = ::poll(&far_end, 1, 0) <= 0;
        socket_->end_writing(socket_);
    }

    [[nodiscard]] bool has_choice() const { return config_.leader_is_supplied || !config_.others.empty(); }

    /// A connection that breaks instead of ending belonged to a daemon that died with our words unread.
    void resend_leave() {
        if (flushed_ && has_choice()) core_.leave_not_acknowledged();
    }

    void finish_flush() {
        if (!flushed_) return;
        flush_timer_.cancel();
        asio::post(io_, [done = std::exchange(flushed_, nullptr)] { done(); });
    }

    void lost(ConnectionClosed how) {
        if (how.foreign && socket_) doubt_address(socket_->name, socket_->remote);
        if (socket_) ask_store_at(socket_->remote);
        close();
        if (flushed_ && core_.has_sent_all()) return finish_flush();
        step(std::move(how));
    }

    void ask_store_at(const Endpoint& remote) {
        if (heard_ || flushed_ || is_cut_off() || has_choice()) return;
        ask_store(io_, wrong_peer_asked_at_, {.remote = remote, .job = config_.job},
                  [self = shared_from_this()](bool has_job) { self->step(StoreAnswered{.has_job = has_job}); });
    }

    /// The daemon is to hear of the new connection before the end of this one.
    void keep_older() {
        if (!socket_) return;
        if (older_.size() == older_max) {
            older_.front()->close();
            older_.pop_front();
        }
        older_.push_back(std::exchange(socket_, nullptr));
    }

    void close() {
        if (!socket_) return;
        if (is_cut_off()) {
            // Its end would be heard; a silent network does not let that through either.
            ended_unacknowledged_.push_back(std::move(socket_));
            writing_ = false;
            return;
        }
        socket_->close();
        socket_ = nullptr;
        writing_ = false;
    }

    /// As a silent network does: nothing comes until the time is up.
    void leave_unanswered(const QueryPeer& ask) {
        const auto timer = std::make_shared<asio::steady_timer>(io_, ask.timeout);
        timer->async_wait([self = shared_from_this(), timer, number = ask.ask.number](const auto&) {
            if (!self->stopped_) self->step(PeerAnswered{.number = number, .answer = std::nullopt});
        });
    }

    void arm_timer() {
        const Instant deadline = core_.deadline();
        if (deadline == armed_for_) return;
        armed_for_ = deadline;
        timer_.cancel();
        if (deadline == no_deadline || stopped_) return;
        timer_.expires_at(deadline);
        timer_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
            if (stopped) return;
            self->armed_for_ = no_deadline;
            self->step(TimePassed{});
        });
    }

    asio::io_context& io_;
    const ClientConfig config_;
    RendezvousLink& callbacks_;  ///< Gone once stopped_.
    ClientCore core_;
    bool heard_ = false;  // the daemon has spoken; until then a stranger may sit in its place
    Instant wrong_peer_asked_at_{};
    Resolver resolver_;
    AnsweringAddresses answering_;
    std::map<std::string, std::string> known_;  ///< Addresses by the endpoint's host. Each name is resolved once ...
    std::set<std::string> asked_again_;         ///< ... except these, whose addresses have failed.
    std::set<std::pair<std::string, std::uint16_t>> wrong_peers_;  ///< Addresses at which another server answered.
    asio::steady_timer timer_;
    asio::steady_timer flush_timer_;
    asio::steady_timer cut_timer_;
    asio::steady_timer cut_attempt_;
    Instant cut_until_ = Instant::min();
    std::vector<std::shared_ptr<Link>> ended_unacknowledged_;
    Instant armed_for_ = no_deadline;
    std::vector<std::shared_ptr<const PskContext>> tls_;  ///< Of each key; null: without one.
    std::shared_ptr<Connector> connector_;
    std::shared_ptr<TlsHandshake> handshake_;
    std::shared_ptr<Link> socket_;
    std::deque<std::shared_ptr<Link>> older_;  ///< Stale. Closed when the open connection receives a message.
    bool writing_ = false;
    bool stopped_ = false;
    std::function<void()> flushed_;
};

Client::Client(asio::io_context& io, ClientConfig config)
    : implementation_(std::make_shared<Implementation>(io, std::move(config), *this)) {}

Client::~Client() {
    implementation_->stop();
}

void Client::submit(native::Message message) {
    implementation_->carry_out(implementation_->core().submit(std::move(message), now()));
}
void Client::cut_off(Duration length) {
    implementation_->cut_off(length);
}
void Client::leader_is(const std::optional<Endpoint>& leader, std::string why) {
    implementation_->carry_out(implementation_->core().leader_is(leader, std::move(why), now()));
}

std::optional<native::PeerAnswer> Client::answer(const native::PeerAsk& ask) const {
    if (implementation_->is_cut_off()) return std::nullopt;
    auto answer = implementation_->core().answer(ask, now());
    implementation_->carry_out(implementation_->core().step(TimePassed{}, now()));
    return answer;
}

bool Client::may_feed() const {
    return implementation_->core().may_feed(now());
}

Instant Client::heard_until() const {
    return implementation_->core().heard_until();
}

void Client::close(Duration limit, std::function<void()> closed) {
    implementation_->flush(limit, std::move(closed));
}

}  // namespace muster::rendezvous
