// One try to reach an endpoint: resolve, then connect to each address in turn until one answers.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/client/resolver.h"

namespace muster::rendezvous {

class Connector : public std::enable_shared_from_this<Connector> {
  public:
    struct Limits {
        Duration resolve;  ///< for the name
        Duration attempt;  ///< for each address
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
    void try_next();
    void attempted(const boost::system::error_code& failure);
    void finish(Result<boost::asio::ip::tcp::socket> outcome);

    Limits limits_;
    Handler handler_;
    boost::asio::ip::tcp::socket socket_;
    boost::asio::steady_timer timer_;
    Resolver::Addresses addresses_;
    std::size_t next_ = 0;
    bool timed_out_ = false;
    bool resolved_ = false;
    std::string tried_;
};

}  // namespace muster::rendezvous
