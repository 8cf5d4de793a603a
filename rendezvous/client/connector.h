// One attempt to reach an endpoint: resolves its name and connects to the first address that answers.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/connect/connect_race.h"
#include "rendezvous/connect/resolver.h"

namespace muster::rendezvous {

class Connector : public std::enable_shared_from_this<Connector> {
  public:
    struct Limits {
        Duration resolve;  ///< for the name
        Duration attempt;  ///< for each address
        Duration stagger = connect_stagger;
        std::optional<boost::asio::ip::address> first{};  ///< tried before the others, if it is one of them
    };
    /// The connected socket, or unreachable with what was tried: "10.0.0.1: Connection refused, fe80::1: no answer
    /// within 2 s".
    using Handler = std::function<void(Result<boost::asio::ip::tcp::socket>)>;

    /// Calls `handler` once from the io_context, unless cancelled before. `io` and `resolver` outlive the try.
    static std::shared_ptr<Connector> start(boost::asio::io_context& io, Resolver& resolver, const Endpoint& endpoint,
                                            Limits limits, Handler handler);
    Connector(boost::asio::io_context& io, Limits limits, Handler handler);

    /// The handler will not be called.
    void cancel();

  private:
    void resolved(Result<Resolver::Addresses> found);
    void finish(Result<boost::asio::ip::tcp::socket> outcome);

    boost::asio::io_context& io_;
    Limits limits_;
    Handler handler_;
    boost::asio::steady_timer timer_;
    std::weak_ptr<ConnectRace> race_;  // its handler holds us: the other way round would be a ring
    bool resolved_ = false;
};

}  // namespace muster::rendezvous
