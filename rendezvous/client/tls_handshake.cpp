#include "rendezvous/client/tls_handshake.h"

#include <boost/asio/write.hpp>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

TlsHandshake::TlsHandshake(asio::io_context& io, tcp::socket socket, std::shared_ptr<const PskContext> context,
                           Handler handler)
    : socket_(std::move(socket)),
      channel_(std::make_unique<PskChannel>(std::move(context))),
      handler_(std::move(handler)),
      timer_(io) {}

std::shared_ptr<TlsHandshake> TlsHandshake::start(asio::io_context& io, tcp::socket socket,
                                                  std::shared_ptr<const PskContext> context, Handler handler) {
    auto made = std::make_shared<TlsHandshake>(io, std::move(socket), std::move(context), std::move(handler));
    made->timer_.expires_after(limit);
    made->timer_.async_wait([self = made](const error_code& stopped) {
        if (!stopped) self->finish(cat("no answer to TLS within ", describe(limit)));
    });
    made->write();
    return made;
}

void TlsHandshake::cancel() {
    handler_ = nullptr;
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
}

/// Each side waits for the other's words. The last ones go out before it is finished: nobody else writes meanwhile.
void TlsHandshake::write() {
    writing_ = channel_->output();
    channel_->drop_output(writing_.size());
    asio::async_write(socket_, asio::buffer(writing_),
                      [self = shared_from_this()](const error_code& failure, std::size_t) {
                          if (!self->handler_) return;  // the deadline came first
                          if (failure) return self->finish(failure.message());
                          if (self->channel_->state() == PskChannel::State::shaking) return self->read();
                          self->finish(self->channel_->why());
                      });
}

void TlsHandshake::read() {
    socket_.async_read_some(asio::buffer(input_),
                            [self = shared_from_this()](const error_code& failure, std::size_t count) {
                                if (!self->handler_) return;
                                if (failure) return self->finish(failure.message());
                                std::string_view wire(self->input_.data(), count);
                                std::array<char, 1> none;
                                self->channel_->read(wire, none);
                                if (self->channel_->state() == PskChannel::State::shaking) return self->read();
                                self->write();
                            });
}

void TlsHandshake::finish(std::string why) {
    if (!handler_) return;
    timer_.cancel();
    const auto handler = std::exchange(handler_, nullptr);
    handler({std::move(socket_), std::move(channel_), std::move(why)});
}

ConnectionFailed judge_handshake(const PskChannel& channel, std::string_view why, std::string_view address) {
    using Reached = ConnectionFailed::Reached;
    const auto failed = [&](Reached reached, std::string_view means) {
        return ConnectionFailed{.tried = cat(address, ": ", means), .reached = reached};
    };
    if (channel.failure() == PskChannel::Failure::wrong_key)
        return failed(Reached::refused,
                      "the rendezvous has another secret than this node, or a key of another job; copy the secret from "
                      "a node that has it: muster key show | ssh NODE muster key set");
    if (channel.failure() == PskChannel::Failure::no_key)
        return failed(
            Reached::refused,
            "the rendezvous has no secret, and this node has one; give the daemon the same secret (muster key "
            "--help), or start the job with --insecure, which leaves ~/.muster/key aside");
    return failed(Reached::stranger, cat("connected, but no TLS is spoken there: ", why,
                                         "; another service, or another version of muster, answers"));
}

}  // namespace muster::rendezvous
