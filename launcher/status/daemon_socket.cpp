#include "launcher/status/daemon_socket.h"

#include <array>

#include "rendezvous/base/text/text.h"

namespace muster::launcher {

using rendezvous::PskChannel;
using rendezvous::PskContext;

Result<void> DaemonSocket::begin_tls(rendezvous::ControlKey key, Instant deadline) {
    tls_ = std::make_unique<PskChannel>(PskContext::client(std::move(key.identity), std::move(key.key)));
    while (tls_->state() == PskChannel::State::shaking)
        if (auto taken = take(deadline); !taken) return taken;
    return flush(deadline);
}

Result<void> DaemonSocket::send(std::string_view bytes, Instant deadline) {
    if (!tls_) return socket_.send(bytes, deadline);
    tls_->write(bytes);
    return flush(deadline);
}

Result<std::string_view> DaemonSocket::receive(Instant deadline) {
    if (!tls_) return socket_.receive(deadline);
    while (plain_.empty()) {
        if (tls_->state() == PskChannel::State::ended) return Error{Errc::peer_closed, "the server closed it"};
        if (auto taken = take(deadline); !taken) return taken.error();
    }
    given_ = std::exchange(plain_, {});
    return std::string_view(given_);
}

Result<void> DaemonSocket::end_sending(Instant deadline) {
    Result<void> sent;
    if (tls_) {
        tls_->close();
        sent = flush(deadline);
    }
    socket_.end_sending();
    return sent;
}

Result<void> DaemonSocket::flush(Instant deadline) {
    const auto sent = socket_.send(tls_->output(), deadline);
    tls_->drop_output(tls_->output().size());
    return sent;
}

/// Some bytes of the wire.
Result<void> DaemonSocket::take(Instant deadline) {
    if (auto sent = flush(deadline); !sent) return sent;
    auto wire = socket_.receive(deadline);
    if (!wire)
        return wire.error().code == Errc::peer_closed
                   ? Error{Errc::bad_frame, cat("the connection was cut: ", wire.error().context)}
                   : wire.error();
    std::array<char, 16 << 10> place;
    while (const auto size = tls_->read(*wire, place)) plain_.append(place.data(), size);
    if (tls_->state() != PskChannel::State::failed) return {};
    (void)flush(deadline);  // The alert tells the daemon why.
    if (has_other_key())
        return Error{Errc::permission_denied, "it has another secret than this node, or none for this job"};
    if (tls_->failure() == PskChannel::Failure::no_key)
        return Error{Errc::permission_denied, "it has no secret, and this node has one"};
    return Error{Errc::bad_frame,
                 cat("no TLS is spoken there: ", tls_->why(), "; is it a different version of muster?")};
}

}  // namespace muster::launcher
