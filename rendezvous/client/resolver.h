// Names to addresses without blocking the loop, and without ever making the end of the process wait for DNS.
//
// getaddrinfo blocks for as long as the resolver's configuration says (30 s and more when a server is dead), and Asio's
// own resolver joins its thread when the io_context goes. Here the threads are detached: they share only what outlives
// the Resolver, and their late answers are dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"

namespace muster::rendezvous {

class Resolver {
  public:
    using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
    using Handler = std::function<void(Result<Addresses>)>;

    /// `io` outlives it.
    explicit Resolver(boost::asio::io_context& io);
    ~Resolver();
    Resolver(const Resolver&) = delete;
    Resolver& operator=(const Resolver&) = delete;

    /// Posts `handler` to the io_context with at least one address, IPv6 and IPv4 in turn, or unreachable. Numeric
    /// addresses need no thread; at most four names are looked up at a time. No time-out: that is the caller's.
    void resolve(const Endpoint& endpoint, Handler handler);

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

}  // namespace muster::rendezvous
