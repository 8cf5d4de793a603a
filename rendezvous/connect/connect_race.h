// Connects to a host with several addresses, some of which may not answer. Attempts start connect_stagger apart (less
// where the caller has less time), or as soon as one has failed, and run in parallel. The first that answers wins
// (RFC 8305).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/sockets/connect_limits.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

class ConnectRace : public std::enable_shared_from_this<ConnectRace> {
  public:
    struct Failure {
        boost::asio::ip::tcp::endpoint address;
        boost::system::error_code why;  ///< timed_out: no answer within one attempt's time.
    };
    struct Outcome {
        std::optional<boost::asio::ip::tcp::socket> socket;  ///< Socket of the first answer.
        std::vector<Failure> failures;  ///< Failures before it; all failures if no address answered.
    };
    using Handler = std::function<void(Outcome)>;

    /// Calls `handler` once from the io_context, at the latest `attempt` after the last address's turn; not after
    /// cancel(). `addresses` is not empty and sorted from best to worst. `io` must outlive the race.
    static std::shared_ptr<ConnectRace> start(boost::asio::io_context& io,
                                              std::vector<boost::asio::ip::tcp::endpoint> addresses, Duration attempt,
                                              Handler handler, Duration stagger = connect_stagger);
    ConnectRace(boost::asio::io_context& io, std::vector<boost::asio::ip::tcp::endpoint> addresses, Duration attempt,
                Handler handler, Duration stagger);

    /// Cancels the race: the handler is not called.
    void cancel();
    /// Ends the race now, with the failures so far.
    void give_up();

  private:
    struct Try {
        explicit Try(boost::asio::io_context& io) : socket(io), timer(io) {}
        boost::asio::ip::tcp::socket socket;
        boost::asio::steady_timer timer;
        bool over = false;
    };

    void begin_next();
    void ended(std::size_t number, boost::system::error_code failure);
    void finish(Outcome outcome);

    boost::asio::io_context& io_;
    const std::vector<boost::asio::ip::tcp::endpoint> addresses_;
    const Duration attempt_;
    const Duration stagger_time_;
    Handler handler_;
    boost::asio::steady_timer stagger_;
    std::vector<std::unique_ptr<Try>> tries_;  ///< Attempts for the first addresses, in their order.
    std::vector<Failure> failures_;
};

/// Returns a text such as "10.0.0.1: Connection refused, fe80::1%eth0: no answer within 2 s".
std::string what_was_tried(const std::vector<ConnectRace::Failure>& failures, Duration attempt);

}  // namespace muster::rendezvous
