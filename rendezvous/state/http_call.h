// One HTTP request to one server, with a deadline for all of it: name, connection, request, answer.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::rendezvous {

struct HttpRequest {
    Endpoint server;
    std::string path;
    std::string body;  ///< JSON, posted
};
struct HttpResponse {
    unsigned status = 0;
    std::string body;
};

/// Calls `handler` once from the io_context. timed_out, unreachable, peer_closed, bad_frame; the context names the
/// server. `io` outlives the call.
void http_post(boost::asio::io_context& io, HttpRequest request, Duration timeout,
               std::function<void(Result<HttpResponse>)> handler);

}  // namespace muster::rendezvous
