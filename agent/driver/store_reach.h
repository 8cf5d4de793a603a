// Finds the address of the workers' store that this node reaches, before its workers start. They get it as MASTER_ADDR,
// and gloo gets the interface that leads there. Each node may need a different one.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/time.h"
#include "rendezvous/connect/connect_race.h"
#include "rendezvous/connect/resolver.h"
#include "rendezvous/wire/native/messages.h"

namespace muster::agent {

class StoreReach {
  public:
    struct Found {
        std::string address;       ///< Address of the store. The first candidate if none was reached.
        std::string interface {};  ///< Interface of this host towards the other nodes. Empty: unknown, or loopback.
        std::string trouble{};     ///< Message if no address was reached, else empty.
    };
    /// What else is known of the ways of this node; each may be empty.
    struct Known {
        std::string own_address;     ///< Address at which other nodes reach this node.
        std::string daemon_address;  ///< Address at which this node reaches the daemon.
        /// A refusal shows that the address is reached as well: the store's port is not yet bound.
        bool is_bound_later = false;
    };
    using Handler = std::function<void(Found)>;

    /// `resolve_max`: for a name, which stands there only where --local-addr gave one.
    explicit StoreReach(boost::asio::io_context& loop, Duration resolve_max = 12s)
        : loop_(loop), resolver_(loop), timer_(loop), resolve_max_(resolve_max) {}
    ~StoreReach() { cancel(); }
    StoreReach& operator=(StoreReach&&) = delete;

    /// Calls `handler` once: inside this call on the store's own node, unless its address is a name; else from the
    /// loop, after a few seconds at the latest; unless cancelled before. Only while none is under way.
    void start(const native::Assigned& assignment, const Known& known, Handler handler);
    /// Something else has come that cannot wait: calls the handler now, with the first candidate.
    void hurry();
    void cancel();

  private:
    using Addresses = rendezvous::Resolver::Addresses;

    void find_own(const std::string& own);
    void look_up(const Endpoint& where, std::function<void(Result<Addresses>)> next);
    void raced(const rendezvous::ConnectRace::Outcome& outcome);
    void finish(Found found);

    boost::asio::io_context& loop_;
    rendezvous::Resolver resolver_;
    boost::asio::steady_timer timer_;  ///< Deadline of the name lookup.
    const Duration resolve_max_;
    std::uint64_t number_ = 0;  ///< Number of the search. Answers to earlier searches are ignored.
    std::shared_ptr<rendezvous::ConnectRace> race_;
    Handler handler_;
    std::vector<std::string> candidates_;
    std::string store_;  // for people
    bool is_bound_later_ = false;
};

}  // namespace muster::agent
