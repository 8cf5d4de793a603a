#include "rendezvous/client/connector.h"

#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

Connector::Connector(asio::io_context& io, Limits limits, Handler handler)
    : io_(io), limits_(limits), handler_(std::move(handler)), timer_(io) {}

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
    if (const auto race = race_.lock()) race->cancel();
    timer_.cancel();
}

void Connector::resolved(Result<Resolver::Addresses> found) {
    if (resolved_) return;  // too late, or cancelled
    resolved_ = true;
    timer_.cancel();
    if (!found) return finish(found.error());
    std::stable_partition(found->begin(), found->end(),
                          [this](const tcp::endpoint& one) { return one.address() == limits_.first; });
    race_ = ConnectRace::start(
        io_, std::move(*found), limits_.attempt,
        [self = shared_from_this()](ConnectRace::Outcome outcome) {
            if (outcome.socket) return self->finish(std::move(*outcome.socket));
            self->finish(Error{Errc::unreachable, what_was_tried(outcome.failures, self->limits_.attempt)});
        },
        limits_.stagger);
}

void Connector::finish(Result<tcp::socket> outcome) {
    if (!handler_) return;
    auto handler = std::exchange(handler_, nullptr);
    handler(std::move(outcome));
}

}  // namespace muster::rendezvous
