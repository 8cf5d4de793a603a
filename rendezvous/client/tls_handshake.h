// The client's side of a TLS handshake on a connected socket.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/base/time.h"
#include "rendezvous/client/core/client_core.h"
#include "rendezvous/tls/psk_channel.h"

namespace muster::rendezvous {

class TlsHandshake : public std::enable_shared_from_this<TlsHandshake> {
  public:
    struct Outcome {
        boost::asio::ip::tcp::socket socket;
        std::unique_ptr<PskChannel> channel;  ///< open, failed, or still shaking where the connection has ended
        std::string why;                      ///< it is not open
    };
    using Handler = std::function<void(Outcome)>;
    /// A daemon that 10,000 nodes join at once takes a few seconds for them.
    static constexpr Duration limit = 10s;

    /// Calls `handler` once from the io_context, unless cancelled before. A server sends nothing before the client has
    /// finished, so no plain bytes are lost. `io` outlives it.
    static std::shared_ptr<TlsHandshake> start(boost::asio::io_context& io, boost::asio::ip::tcp::socket socket,
                                               std::shared_ptr<const PskContext> context, Handler handler);
    TlsHandshake(boost::asio::io_context& io, boost::asio::ip::tcp::socket socket,
                 std::shared_ptr<const PskContext> context, Handler handler);

    /// Closes the connection; the handler will not be called.
    void cancel();

  private:
    void write();
    void read();
    void finish(std::string why);

    boost::asio::ip::tcp::socket socket_;
    std::unique_ptr<PskChannel> channel_;
    Handler handler_;
    boost::asio::steady_timer timer_;
    std::string writing_;
    std::array<char, 4'096> input_;
};

/// What one with `address` that failed for `why` means for this node, in words for the user.
ConnectionFailed judge_handshake(const PskChannel& channel, std::string_view why, std::string_view address);

}  // namespace muster::rendezvous
