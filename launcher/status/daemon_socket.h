// A connection to a daemon in blocking calls that all have a deadline: in clear text, or in TLS with a key.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/store_client/blocking_socket.h"
#include "rendezvous/tls/psk_channel.h"

namespace muster::launcher {

class DaemonSocket {
  public:
    /// In clear text, until begin_tls.
    explicit DaemonSocket(rendezvous::BlockingSocket socket) : socket_(std::move(socket)) {}

    /// Proves the key to the daemon, and hears its proof. Errors: permission_denied: the daemon has another key
    /// (has_other_key) or none; bad_frame: it speaks no such TLS; of the connection.
    Result<void> begin_tls(rendezvous::ControlKey key, Instant deadline);
    [[nodiscard]] bool has_other_key() const {
        return tls_ && tls_->failure() == rendezvous::PskChannel::Failure::wrong_key;
    }

    Result<void> send(std::string_view bytes, Instant deadline);
    /// At least one byte; the view is valid until the next call. peer_closed: the daemon has said everything. In TLS a
    /// connection that ends without the daemon's word is bad_frame.
    Result<std::string_view> receive(Instant deadline);
    /// Nothing more is sent; what the daemon sends is still received.
    Result<void> end_sending(Instant deadline);

    [[nodiscard]] const rendezvous::BlockingSocket& wire() const { return socket_; }

  private:
    Result<void> flush(Instant deadline);
    Result<void> take(Instant deadline);

    rendezvous::BlockingSocket socket_;
    std::unique_ptr<rendezvous::PskChannel> tls_;  ///< Null: clear text.
    std::string plain_, given_;
};

}  // namespace muster::launcher
