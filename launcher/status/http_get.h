// One GET of a page of the daemon, in blocking calls with a deadline.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"
#include "rendezvous/secret/control_key.h"
#include "rendezvous/store_client/blocking_socket.h"

namespace muster::launcher {

struct HttpAnswer {
    unsigned status = 0;
    std::string body;
};

/// Ends a GET before its deadline.
class Interruption {
  public:
    /// From any thread: the GET in progress and all later ones fail.
    void stop();
    /// For http_get: the socket that it uses. False after stop().
    bool use(const rendezvous::BlockingSocket* socket);

  private:
    std::mutex mutex_;
    const rendezvous::BlockingSocket* socket_ = nullptr;
    bool stopped_ = false;
};

/// Asks each address in turn until one answers: in TLS with `key`, if there is one. Errors: of the connection and of
/// DaemonSocket::begin_tls; bad_frame: no HTTP answer of muster; limit_exceeded: a page of more than 64 MiB.
Result<HttpAnswer> http_get(const std::vector<SocketAddress>& addresses, const std::string& target,
                            const std::optional<rendezvous::ControlKey>& key, Instant deadline,
                            Interruption* interruption = nullptr);

}  // namespace muster::launcher
