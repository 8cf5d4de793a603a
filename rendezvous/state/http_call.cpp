#include "rendezvous/state/http_call.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <utility>

#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

namespace {

/// A page of 200 records, each with a few KiB in base64; a failure's texts are larger.
constexpr std::uint64_t body_bytes_max = std::uint64_t{64} << 20;

class Call : public std::enable_shared_from_this<Call> {
  public:
    Call(asio::io_context& io, HttpRequest request, std::function<void(Result<HttpResponse>)> handler)
        : server_(std::move(request.server)), handler_(std::move(handler)), resolver_(io), socket_(io), timer_(io) {
        request_.method(http::verb::post);
        request_.target(request.path);
        request_.version(11);
        request_.set(http::field::host, describe(server_));
        request_.set(http::field::content_type, "application/json");
        request_.set(http::field::connection, "close");
        request_.body() = std::move(request.body);
        request_.prepare_payload();
        parser_.body_limit(body_bytes_max);
    }

    void start(Duration timeout) {
        timer_.expires_after(timeout);
        timer_.async_wait([self = shared_from_this(), timeout](const beast::error_code& stopped) {
            if (!stopped) self->finish(Error{Errc::timed_out, cat("no answer within ", describe(timeout))});
        });
        resolver_.async_resolve(server_.host, std::to_string(server_.port),
                                [self = shared_from_this()](const beast::error_code& failure, const auto& found) {
                                    if (failure) return self->failed(failure);
                                    self->connect(found);
                                });
    }

  private:
    void connect(const tcp::resolver::results_type& addresses) {
        socket_.async_connect(addresses,
                              [self = shared_from_this()](const beast::error_code& failure, const tcp::endpoint&) {
                                  if (failure) return self->failed(failure);
                                  self->write();
                              });
    }
    void write() {
        http::async_write(socket_, request_,
                          [self = shared_from_this()](const beast::error_code& failure, std::size_t) {
                              if (failure) return self->failed(failure);
                              self->read();
                          });
    }
    void read() {
        http::async_read(socket_, buffer_, parser_,
                         [self = shared_from_this()](const beast::error_code& failure, std::size_t) {
                             if (failure) return self->failed(failure);
                             auto& message = self->parser_.get();
                             self->finish(HttpResponse{message.result_int(), std::move(message.body())});
                         });
    }

    void failed(const beast::error_code& failure) {
        const bool closed = failure == asio::error::eof || failure == http::error::end_of_stream;
        finish(Error{closed ? Errc::peer_closed : Errc::unreachable, failure.message()});
    }
    void finish(Result<HttpResponse> outcome) {
        if (!handler_) return;
        auto handler = std::exchange(handler_, nullptr);
        timer_.cancel();
        resolver_.cancel();
        socket_.close();
        if (!outcome) outcome = with_context(outcome.error(), describe(server_));
        handler(std::move(outcome));
    }

    Endpoint server_;
    std::function<void(Result<HttpResponse>)> handler_;
    tcp::resolver resolver_;
    beast::tcp_stream socket_;
    asio::steady_timer timer_;
    http::request<http::string_body> request_;
    beast::flat_buffer buffer_;
    http::response_parser<http::string_body> parser_;
};

}  // namespace

void http_post(asio::io_context& io, HttpRequest request, Duration timeout,
               std::function<void(Result<HttpResponse>)> handler) {
    std::make_shared<Call>(io, std::move(request), std::move(handler))->start(timeout);
}

}  // namespace muster::rendezvous
