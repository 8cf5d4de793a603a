// One GET of a page of the daemon, in blocking calls with a deadline.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"
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

/// Asks each address in turn until one answers. `token` is sent as a bearer token; empty: none. Errors: of the
/// connection; bad_frame: no HTTP answer of muster; limit_exceeded: a page of more than 64 MiB.
Result<HttpAnswer> http_get(const std::vector<SocketAddress>& addresses, const std::string& target,
                            const std::string& token, Instant deadline, Interruption* interruption = nullptr);

}  // namespace muster::launcher
