#include "rendezvous/client/peer_query.h"

#include <algorithm>
#include <array>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <utility>

#include "rendezvous/client/connector.h"
#include "rendezvous/wire/native/codec.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

class PeerQuery : public std::enable_shared_from_this<PeerQuery> {
  public:
    using Handler = std::function<void(std::optional<native::PeerAnswer>)>;

    PeerQuery(asio::io_context& io, AnsweringAddresses& known, const QueryPeer& ask, Handler handler)
        : known_(known), peer_(ask.peer.address), timer_(io), socket_(io), handler_(std::move(handler)) {
        native::append_frame(bytes_, ask.ask);
    }

    void start(asio::io_context& io, Resolver& resolver, const QueryPeer& ask) {
        timer_.expires_after(ask.timeout);
        timer_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
            if (!stopped) self->finish(std::nullopt);
        });
        const auto found = known_.find(peer_);
        connector_ = Connector::start(
            io, resolver, {.host = ask.peer.address, .port = ask.peer.port},
            {.resolve = ask.timeout,
             .attempt = ask.timeout,
             .stagger = std::min<Duration>(connect_stagger, ask.timeout / 4),
             .first = found == known_.end() ? std::nullopt : std::optional(found->second)},
            [self = shared_from_this()](Result<tcp::socket> socket) { self->connected(std::move(socket)); });
    }

  private:
    void connected(Result<tcp::socket> socket) {
        if (!socket || !handler_) return finish(std::nullopt);
        socket_ = std::move(*socket);
        boost::system::error_code ignored;
        remote_ = socket_.remote_endpoint(ignored).address();
        asio::async_write(socket_, asio::buffer(bytes_),
                          [self = shared_from_this()](const boost::system::error_code& failure, std::size_t) {
                              if (failure) self->finish(std::nullopt);
                          });
        read();
    }

    void read() {
        socket_.async_read_some(asio::buffer(input_), [self = shared_from_this()](
                                                          const boost::system::error_code& failure, std::size_t count) {
            if (failure) return self->finish(std::nullopt);
            self->reader_.append({self->input_.data(), count});
            auto message = self->reader_.next();
            if (!message) return self->finish(std::nullopt);
            if (!*message) return self->read();
            const auto* answer = std::get_if<native::PeerAnswer>(&**message);
            if (answer != nullptr && self->handler_) self->known_[self->peer_] = self->remote_;
            self->finish(answer != nullptr ? std::optional(*answer) : std::nullopt);
        });
    }

    void finish(std::optional<native::PeerAnswer> answer) {
        if (!handler_) return;
        timer_.cancel();
        if (const auto connector = connector_.lock()) connector->cancel();
        boost::system::error_code ignored;
        socket_.close(ignored);
        std::exchange(handler_, nullptr)(answer);
    }

    AnsweringAddresses& known_;
    const std::string peer_;
    asio::steady_timer timer_;
    tcp::socket socket_;
    asio::ip::address remote_;
    Handler handler_;
    std::weak_ptr<Connector> connector_;  // its handler holds us: the other way round would be a ring
    std::string bytes_;
    std::array<char, 512> input_;
    native::FrameReader reader_{native::Sender::peer};
};

}  // namespace

void query_peer(asio::io_context& io, Resolver& resolver, AnsweringAddresses& known, const QueryPeer& ask,
                std::function<void(std::optional<native::PeerAnswer>)> handler) {
    std::make_shared<PeerQuery>(io, known, ask, std::move(handler))->start(io, resolver, ask);
}

}  // namespace muster::rendezvous
