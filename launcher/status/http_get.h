// One GET of a page of the daemon, in blocking calls with a deadline.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

struct HttpAnswer {
    unsigned status = 0;
    std::string body;
};

/// Asks each address in turn until one answers. `token` is sent as a bearer token; empty: none. Errors: of the
/// connection; bad_frame: no HTTP answer of muster; limit_exceeded: a page of more than 64 MiB.
Result<HttpAnswer> http_get(const std::vector<SocketAddress>& addresses, const std::string& target,
                            const std::string& token, Instant deadline);

}  // namespace muster::launcher
