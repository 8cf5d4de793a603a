#include "rendezvous/client/connector.h"

#include <utility>

#include "rendezvous/base/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

Connector::Connector(asio::io_context& io, Limits limits, Handler handler)
    : limits_(limits), handler_(std::move(handler)), socket_(io), timer_(io) {}

std::shared_ptr<Connector> Connector::start(asio::io_context& io, Resolver& resolver, const Endpoint& endpoint,
                                            Limits limits, Handler handler) {
    auto connector = std::make_shared<Connector>(io, limits, std::move(handler));
    connector->timer_.expires_after(limits.resolve);
    connector->timer_.async_wait([self = connector, host = endpoint.host](const boost::system::error_code& stopped) {
        if (stopped || self->resolved_) return;
        self->resolved_ = true;
        self->finish(Error{Errc::unreachable,
                           cat(host, ": the name was not resolved within ", describe(self->limits_.resolve))});
    });
    resolver.resolve(endpoint,
                     [self = connector](Result<Resolver::Addresses> found) { self->resolved(std::move(found)); });
    return connector;
}

void Connector::cancel() {
    handler_ = nullptr;
    resolved_ = true;
    boost::system::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
}

void Connector::resolved(Result<Resolver::Addresses> found) {
    if (resolved_) return;  // too late, or cancelled
    resolved_ = true;
    timer_.cancel();
    if (!found) return finish(found.error());
    addresses_ = std::move(*found);
    try_next();
}

void Connector::try_next() {
    if (next_ == addresses_.size()) return finish(Error{Errc::unreachable, tried_});
    timed_out_ = false;
    timer_.expires_after(limits_.attempt);
    timer_.async_wait([self = shared_from_this(), attempt = next_](const boost::system::error_code& stopped) {
        if (stopped || attempt != self->next_ || !self->handler_) return;
        self->timed_out_ = true;
        boost::system::error_code ignored;
        self->socket_.close(ignored);
    });
    socket_.async_connect(addresses_[next_], [self = shared_from_this()](const boost::system::error_code& failure) {
        self->attempted(failure);
    });
}

void Connector::attempted(const boost::system::error_code& failure) {
    if (!handler_) return;
    timer_.cancel();
    if (!failure && !timed_out_) return finish(std::move(socket_));
    const std::string why = timed_out_ ? cat("no answer within ", describe(limits_.attempt)) : failure.message();
    tried_ += cat(tried_.empty() ? "" : ", ", addresses_[next_].address().to_string(), ": ", why);
    boost::system::error_code ignored;
    socket_.close(ignored);
    ++next_;
    try_next();
}

void Connector::finish(Result<tcp::socket> outcome) {
    if (!handler_) return;
    auto handler = std::exchange(handler_, nullptr);
    handler(std::move(outcome));
}

}  // namespace muster::rendezvous
