#include "rendezvous/connect/connect_race.h"

#include <utility>

#include "rendezvous/base/check.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

ConnectRace::ConnectRace(asio::io_context& io, std::vector<tcp::endpoint> addresses, Duration attempt, Handler handler,
                         Duration stagger)
    : io_(io),
      addresses_(std::move(addresses)),
      attempt_(attempt),
      stagger_time_(stagger),
      handler_(std::move(handler)),
      stagger_(io) {
    MUSTER_CHECK(!addresses_.empty());
}

std::shared_ptr<ConnectRace> ConnectRace::start(asio::io_context& io, std::vector<tcp::endpoint> addresses,
                                                Duration attempt, Handler handler, Duration stagger) {
    auto race = std::make_shared<ConnectRace>(io, std::move(addresses), attempt, std::move(handler), stagger);
    race->begin_next();
    return race;
}

void ConnectRace::cancel() {
    handler_ = nullptr;
    stagger_.cancel();
    for (const auto& one : tries_) {
        error_code ignored;
        one->socket.close(ignored);
        one->timer.cancel();
    }
}

void ConnectRace::give_up() {
    finish({.socket = std::nullopt, .failures = std::move(failures_)});
}

void ConnectRace::begin_next() {
    const auto number = tries_.size();
    if (number == addresses_.size()) return;
    auto& one = *tries_.emplace_back(std::make_unique<Try>(io_));
    one.timer.expires_after(attempt_);
    one.timer.async_wait([self = shared_from_this(), number](const error_code& stopped) {
        if (!stopped) self->ended(number, asio::error::timed_out);
    });
    one.socket.async_connect(addresses_[number], [self = shared_from_this(), number](const error_code& failure) {
        self->ended(number, failure);
    });
    // The previous attempt may have failed early, so the stagger of the next attempt counts from now.
    stagger_.expires_after(stagger_time_);
    stagger_.async_wait([self = shared_from_this()](const error_code& stopped) {
        if (!stopped && self->handler_) self->begin_next();
    });
}

void ConnectRace::ended(std::size_t number, error_code failure) {
    auto& one = *tries_[number];
    if (!handler_ || std::exchange(one.over, true)) return;
    one.timer.cancel();
    if (!failure) return finish({.socket = std::move(one.socket), .failures = std::move(failures_)});
    error_code ignored;
    one.socket.close(ignored);
    failures_.push_back({addresses_[number], failure});
    if (failures_.size() == addresses_.size()) return give_up();
    if (number + 1 == tries_.size()) begin_next();
}

void ConnectRace::finish(Outcome outcome) {
    if (!handler_) return;
    auto handler = std::exchange(handler_, nullptr);
    cancel();
    handler(std::move(outcome));
}

std::string what_was_tried(const std::vector<ConnectRace::Failure>& failures, Duration attempt) {
    std::vector<std::string> words;
    for (const auto& [address, why] : failures)
        words.push_back(
            cat(address.address().to_string(), ": ",
                why == asio::error::timed_out ? cat("no answer within ", describe(attempt)) : why.message()));
    return join(words, ", ");
}

}  // namespace muster::rendezvous
