#include "rendezvous/state/etcd/http_caller.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/connect/connect_race.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// A page of 200 records, each with a few KiB in base64; a failure's texts are larger.
constexpr std::uint64_t body_bytes_max = std::uint64_t{64} << 20;
/// Idle connections kept per server; as many as there are concurrent requests.
constexpr std::size_t idle_max = 4;

/// A connection, plain or with TLS.
struct Wire {
    Wire(asio::io_context& io, asio::ssl::context* tls) : bare(io) {
        if (tls != nullptr) secure.emplace(bare, *tls);
    }
    tcp::socket bare;
    std::optional<asio::ssl::stream<tcp::socket&>> secure;
};

}  // namespace

class HttpCaller::Shared : public std::enable_shared_from_this<Shared> {
  public:
    struct Server {
        Endpoint endpoint;
        Resolver::Addresses addresses;  ///< the last one that answered comes first
        bool doubtful = true;           ///< a failure since the last name lookup
        bool looking_up = false;
        std::vector<std::function<void(const Result<Resolver::Addresses>&)>> waiting;
        std::vector<std::unique_ptr<Wire>> idle;
    };

    Shared(asio::io_context& loop, std::vector<Endpoint> endpoints, std::unique_ptr<asio::ssl::context> context,
           std::string ca, LookUp look_up)
        : io(loop), tls(std::move(context)), ca_file(std::move(ca)), resolver_(loop), look_up_(std::move(look_up)) {
        if (!look_up_)
            look_up_ = [this](const Endpoint& endpoint, Resolver::Handler handler) {
                resolver_.resolve(endpoint, std::move(handler));
            };
        for (auto& endpoint : endpoints) {
            Server server;
            server.endpoint = std::move(endpoint);
            servers.push_back(std::move(server));
        }
    }

    /// Passes the known addresses, and refreshes them in the background if doubtful. Waits for the lookup if none are
    /// known.
    void with_addresses(Server& server, std::function<void(const Result<Resolver::Addresses>&)> then) {
        if (server.doubtful && !server.looking_up) look_up(server);
        if (!server.addresses.empty()) return then(server.addresses);
        server.waiting.push_back(std::move(then));
    }

    void stop() {
        stopped = true;
        resolver_.stop();
        for (auto& server : servers) {
            server.waiting.clear();
            server.idle.clear();
        }
    }

    asio::io_context& io;
    const std::unique_ptr<asio::ssl::context> tls;
    const std::string ca_file;
    std::vector<Server> servers;
    bool stopped = false;

  private:
    void look_up(Server& server) {
        server.looking_up = true;
        const auto which = static_cast<std::size_t>(&server - servers.data());
        look_up_(server.endpoint, [self = weak_from_this(), which](Result<Resolver::Addresses> found) {
            if (const auto there = self.lock()) there->looked_up(there->servers[which], std::move(found));
        });
    }
    void looked_up(Server& server, Result<Resolver::Addresses> found) {
        server.looking_up = false;
        if (found) {
            server.doubtful = false;
            server.addresses = *found;
        }
        for (auto& one : std::exchange(server.waiting, {})) one(found);
    }

    Resolver resolver_;
    LookUp look_up_;
};

class HttpCaller::Call : public std::enable_shared_from_this<Call> {
  public:
    Call(std::shared_ptr<Shared> shared, HttpPost request, Handler handler)
        : shared_(std::move(shared)),
          server_(shared_->servers[request.server]),
          handler_(std::move(handler)),
          check_(server_.endpoint.host, shared_->ca_file),
          timer_(shared_->io) {
        request_.method(http::verb::post);
        request_.target(request.path);
        request_.version(11);
        request_.set(http::field::host, describe(server_.endpoint));
        request_.set(http::field::content_type, "application/json");
        if (!request.authorization.empty()) request_.set(http::field::authorization, request.authorization);
        request_.body() = std::move(request.body);
        request_.prepare_payload();
    }

    void start(Duration timeout) {
        timeout_ = timeout;
        timer_.expires_after(timeout);
        timer_.async_wait([self = shared_from_this(), timeout](const error_code& stopped) {
            if (stopped || self->finished_) return;
            self->finish(Error{Errc::timed_out, cat(self->stage_, describe(timeout))});
        });
        if (server_.idle.empty()) return find();
        wire_ = std::move(server_.idle.back());
        server_.idle.pop_back();
        reused_ = true;
        write();
    }

  private:
    void find() {
        stage_ = "the name was not resolved within ";
        shared_->with_addresses(server_, [self = shared_from_this()](const Result<Resolver::Addresses>& found) {
            if (self->finished_) return;
            if (!found) return self->finish(Error{Errc::unreachable, found.error().context});
            self->connect(*found);
        });
    }
    void connect(const Resolver::Addresses& addresses) {
        stage_ = "no connection within ";
        reused_ = false;
        wire_ = std::make_unique<Wire>(shared_->io, shared_->tls.get());
        race_ = ConnectRace::start(shared_->io, addresses, timeout_,
                                   [self = shared_from_this()](ConnectRace::Outcome outcome) {
                                       if (self->finished_) return;
                                       if (!outcome.socket) return self->failed(outcome.failures.back().why);
                                       error_code gone;
                                       const auto reached = outcome.socket->remote_endpoint(gone);
                                       if (gone) return self->failed(gone);
                                       self->wire_->bare = std::move(*outcome.socket);
                                       self->connected(reached);
                                   });
    }
    void connected(const tcp::endpoint& reached) {
        stage_ = "no answer within ";
        auto& known = server_.addresses;
        if (const auto at = std::find(known.begin(), known.end(), reached); at != known.end())
            std::rotate(known.begin(), at, at + 1);
        error_code ignored;
        wire_->bare.set_option(tcp::no_delay(true), ignored);
        if (!wire_->secure) return write();
        auto& stream = *wire_->secure;
        const auto& host = server_.endpoint.host;
        if (!SocketAddress::from_numeric(host, 0)) ::SSL_set_tlsext_host_name(stream.native_handle(), host.c_str());
        // A weak reference, because the connection may outlive the call that owns it.
        stream.set_verify_callback(
            [self = weak_from_this()](bool accepted, asio::ssl::verify_context& chain) {
                const auto call = self.lock();
                return call && call->check_(accepted, chain);
            },
            ignored);
        shakes_hands_ = true;
        stream.async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](const error_code& failure) {
            if (self->finished_) return;
            if (failure) return self->failed(failure);
            self->shakes_hands_ = false;
            self->write();
        });
    }

    void on_stream(auto operation) {
        if (wire_->secure)
            operation(*wire_->secure);
        else
            operation(wire_->bare);
    }
    void write() {
        stage_ = "no answer within ";
        on_stream([this](auto& stream) {
            http::async_write(stream, request_, [self = shared_from_this()](const error_code& failure, std::size_t) {
                if (self->finished_) return;
                if (failure) return self->failed(failure);
                self->read();
            });
        });
    }
    void read() {
        buffer_.clear();
        parser_.emplace();
        parser_->body_limit(body_bytes_max);
        on_stream([this](auto& stream) {
            http::async_read(stream, buffer_, *parser_,
                             [self = shared_from_this()](const error_code& failure, std::size_t) {
                                 if (self->finished_) return;
                                 if (failure) return self->failed(failure);
                                 self->answered();
                             });
        });
    }
    void answered() {
        auto& message = parser_->get();
        const bool kept = message.keep_alive() && buffer_.size() == 0 && !shared_->stopped;
        if (kept && server_.idle.size() < idle_max) server_.idle.push_back(std::move(wire_));
        finish(HttpResponse{message.result_int(), std::move(message.body())});
    }

    void failed(const error_code& failure) {
        // The server has closed this idle connection: try again with a new one.
        if (reused_ && !(parser_ && parser_->got_some())) {
            server_.idle.clear();
            parser_.reset();
            return find();
        }
        if (!check_.objection().empty()) return finish(Error{Errc::refused, check_.objection()});
        const bool closed = failure == asio::error::eof || failure == http::error::end_of_stream ||
                            failure == asio::ssl::error::stream_truncated || failure == asio::error::connection_reset;
        if (closed && shakes_hands_)
            return finish(Error{Errc::refused,
                                "the server closed the connection during the TLS handshake; if it does not use "
                                "TLS, set protocol http"});
        // A TLS server answers a plain client in this way.
        if (closed && !wire_->secure)
            return finish(Error{Errc::peer_closed, cat("the connection ended without an answer (", failure.message(),
                                                       "); if the server uses TLS, set protocol https")});
        const bool of_tls = failure.category() == asio::error::get_ssl_category();
        finish(Error{of_tls ? Errc::refused : closed ? Errc::peer_closed : Errc::unreachable, describe_tls(failure)});
    }
    void finish(Result<HttpResponse> outcome) {
        finished_ = true;
        timer_.cancel();
        if (const auto race = race_.lock()) race->cancel();
        if (!outcome) distrust();
        if (wire_) {
            error_code ignored;
            wire_->bare.close(ignored);
        }
        auto handler = std::exchange(handler_, nullptr);
        if (shared_->stopped) return;
        if (!outcome) outcome = with_context(outcome.error(), describe(server_.endpoint));
        handler(std::move(outcome));
    }
    /// Requests a new lookup and moves on to the next address.
    void distrust() {
        server_.doubtful = true;
        server_.idle.clear();
        if (server_.addresses.size() > 1)
            std::rotate(server_.addresses.begin(), server_.addresses.begin() + 1, server_.addresses.end());
    }

    std::shared_ptr<Shared> shared_;
    Shared::Server& server_;
    Handler handler_;
    CertificateCheck check_;
    asio::steady_timer timer_;
    std::string stage_;
    Duration timeout_{};
    std::weak_ptr<ConnectRace> race_;  // weak: its handler owns this call
    std::unique_ptr<Wire> wire_;
    bool reused_ = false;
    bool shakes_hands_ = false;
    bool finished_ = false;
    http::request<http::string_body> request_;
    boost::beast::flat_buffer buffer_;
    std::optional<http::response_parser<http::string_body>> parser_;
};

Result<std::unique_ptr<HttpCaller>> HttpCaller::open(asio::io_context& io, std::vector<Endpoint> servers,
                                                     const std::optional<TlsFiles>& tls, LookUp look_up) {
    std::unique_ptr<asio::ssl::context> context;
    if (tls) {
        context = MUSTER_TRY(make_tls_context(*tls));
    }
    return std::unique_ptr<HttpCaller>(new HttpCaller(std::make_shared<Shared>(
        io, std::move(servers), std::move(context), tls ? tls->ca : std::string{}, std::move(look_up))));
}

HttpCaller::HttpCaller(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

HttpCaller::~HttpCaller() {
    stop();
}

void HttpCaller::post(HttpPost request, Duration timeout, Handler handler) {
    std::make_shared<Call>(shared_, std::move(request), std::move(handler))->start(timeout);
}

void HttpCaller::know(std::size_t server, const std::string& addresses) {
    auto& known = shared_->servers[server];
    for (const auto part : split(addresses, ',')) {
        boost::system::error_code wrong;
        const auto address = asio::ip::make_address(std::string(part), wrong);
        if (!wrong) known.addresses.emplace_back(address, known.endpoint.port);
    }
}

void HttpCaller::stop() {
    shared_->stop();
}

}  // namespace muster::rendezvous
