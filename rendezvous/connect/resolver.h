// Resolves names for an Asio loop without blocking it (name_lookup.h explains the threads).
//
// Asio's own resolver joins its thread with the io_context, which may take as long as DNS. Here the threads are
// detached and identify a request only by its number. The handlers, which may own sockets and timers of the loop, stay
// with the Resolver and are destroyed with it, on the loop's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"

namespace muster::rendezvous {

class Resolver {
  public:
    using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
    using Handler = std::function<void(Result<Addresses>)>;

    /// `io` must outlive it, or stop() must be called before.
    explicit Resolver(boost::asio::io_context& io);
    ~Resolver();
    Resolver& operator=(Resolver&&) = delete;

    /// Posts `handler` to the io_context with at least one address, alternating between IPv6 and IPv4, or the error.
    /// Numeric addresses need no thread; at most four names are looked up at a time. There is no timeout.
    void resolve(const Endpoint& endpoint, Handler handler);
    /// Drops the open requests: their handlers are destroyed now and never called. Afterwards the io_context is not
    /// used any more.
    void stop();

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

}  // namespace muster::rendezvous
