// One connection's buffers of the client; asynchronous operations hold it, so that a late completion finds its own
// connection's.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/client/core/client_core.h"
#include "rendezvous/tls/psk_channel.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::rendezvous {

struct Link {
    static constexpr std::size_t read_bytes = 16 * 1024;  // the daemon's largest message comes in pieces of this

    Link(boost::asio::ip::tcp::socket connected, std::unique_ptr<PskChannel> channel, std::string host, Endpoint where)
        : socket(std::move(connected)), tls(std::move(channel)), name(std::move(host)), remote(std::move(where)) {}

    /// The first `count` bytes of `input` came. Why the connection is of no use any more; empty: it is.
    std::string take(std::size_t count) {
        std::string_view wire(input.data(), count);
        if (!tls) {
            reader.append(wire);
            return {};
        }
        std::array<char, read_bytes> plain;
        while (const auto size = tls->read(wire, plain)) reader.append({plain.data(), size});
        if (tls->state() == PskChannel::State::failed) return "TLS failed: " + tls->why();
        return {};
    }
    /// What was queued becomes what is written.
    void begin_writing() {
        writing = std::exchange(queued, {});
        if (tls) seal();
    }
    /// Nothing more follows. `self` is this one.
    void end_writing(const std::shared_ptr<Link>& self) {
        writing.clear();
        if (tls) {
            tls->close();
            seal();
        }
        boost::asio::async_write(socket, boost::asio::buffer(writing),
                                 [self](const boost::system::error_code&, std::size_t) {
                                     boost::system::error_code ignored;
                                     self->socket.shutdown(boost::asio::socket_base::shutdown_send, ignored);
                                 });
    }
    void close() {
        boost::system::error_code ignored;
        socket.close(ignored);
    }
    /// The daemon's end, unless somebody has cut it.
    [[nodiscard]] bool has_ended() const { return !tls || tls->state() == PskChannel::State::ended; }

    boost::asio::ip::tcp::socket socket;
    std::unique_ptr<PskChannel> tls;  // empty: clear text
    const std::string name;           // the endpoint's host
    const Endpoint remote;            // the address of it that answered
    std::array<char, read_bytes> input;
    native::FrameReader reader{native::Sender::daemon};
    std::string writing;  // handed to the kernel
    std::string queued;   // to go with the next write
    // While this agent is cut off:
    bool write_held = false;
    bool half_closed = false;
    bool heard_to_the_end = false;         ///< True if the daemon was still connected when our side closed.
    std::optional<ConnectionClosed> held;  // something was read; and with a reason, the end of the connection

  private:
    void seal() {
        tls->write(writing);
        writing = tls->output();
        tls->drop_output(writing.size());
    }
};

}  // namespace muster::rendezvous
