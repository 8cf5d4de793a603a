// HTTP requests to a few servers, each with a deadline for all of it: name, connection, TLS, request, answer.
//
// A request costs one round trip: connections are kept for the next ones, and so are addresses. A name is looked up
// when nothing is known of it, and again, beside whatever goes on, after a failure; a name service that is slow then
// costs nobody a deadline. One that is slow at the start costs the requests of that time, and not those after them.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "rendezvous/connect/resolver.h"
#include "rendezvous/state/etcd/tls.h"

namespace muster::rendezvous {

struct HttpPost {
    std::size_t server = 0;
    std::string path;
    std::string body;           ///< JSON, posted
    std::string authorization;  ///< the header's value; empty: none
};
struct HttpResponse {
    unsigned status = 0;
    std::string body;
};

class HttpCaller {
  public:
    using Handler = std::function<void(Result<HttpResponse>)>;
    /// Names to addresses: Resolver::resolve, or a test's own.
    using LookUp = std::function<void(const Endpoint&, Resolver::Handler)>;

    /// `tls` empty: none. Errors are make_tls_context's. `io` outlives it.
    static Result<std::unique_ptr<HttpCaller>> open(boost::asio::io_context& io, std::vector<Endpoint> servers,
                                                    const std::optional<TlsFiles>& tls, LookUp look_up = {});
    ~HttpCaller();

    /// Calls `handler` once from the io_context. timed_out, unreachable, peer_closed, refused (one of
    /// the two did not accept the other's certificate); the context names the server. A request may reach the server
    /// twice, where the connection that was kept for it ends under it.
    void post(HttpPost request, Duration timeout, Handler handler);
    /// The addresses of a server whose name somebody has looked up already, as Endpoint::host lists them: used until
    /// the name service has answered, for which nothing waits then. Before the first request.
    void know(std::size_t server, const std::string& addresses);
    /// No handler is called any more.
    void stop();

  private:
    class Shared;
    class Call;
    explicit HttpCaller(std::shared_ptr<Shared> shared);
    std::shared_ptr<Shared> shared_;
};

}  // namespace muster::rendezvous
