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

/// How a viewer asks another host: by TLS with this key, or in clear text.
using Way = std::optional<rendezvous::ControlKey>;

struct HttpAnswer {
    unsigned status = 0;
    std::string body;
    std::size_t way = 0;  ///< the one of the ways that was accepted
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

/// Asks each address in turn, the reachable first, until one answers or refuses: by `ways[first]`, then by the others
/// in their order. Addresses of loopback are asked in clear text, because there the kernel tells who asks. Errors: of
/// the connection; permission_denied, for the user: each way was refused; bad_frame: no HTTP answer of muster;
/// peer_closed: a part of one; limit_exceeded: a page of more than 64 MiB.
Result<HttpAnswer> http_get(const std::vector<SocketAddress>& addresses, const std::string& target,
                            const std::vector<Way>& ways, std::size_t first, Instant deadline,
                            Interruption* interruption = nullptr);

}  // namespace muster::launcher
