// HTTP requests to a few servers. One deadline covers name lookup, connection, TLS, request and answer.
//
// A request costs one round trip, because connections and addresses are reused. A name is resolved on first use, and
// again in the background after a failure, so a slow name service delays only the first requests.
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
    /// Resolves a name: Resolver::resolve, or a test's replacement.
    using LookUp = std::function<void(const Endpoint&, Resolver::Handler)>;

    /// An empty `tls` means plain HTTP. Errors: as make_tls_context. `io` must outlive it.
    static Result<std::unique_ptr<HttpCaller>> open(boost::asio::io_context& io, std::vector<Endpoint> servers,
                                                    const std::optional<TlsFiles>& tls, LookUp look_up = {});
    ~HttpCaller();

    /// Calls `handler` once from the io_context. Errors: timed_out, unreachable, peer_closed, refused (one side did not
    /// accept the other's certificate); the context names the server. A request may reach the server twice when a
    /// reused connection closes during it.
    void post(HttpPost request, Duration timeout, Handler handler);
    /// Sets a server's known addresses, in the format of Endpoint::host; used until the name service answers. Call it
    /// before the first request.
    void know(std::size_t server, const std::string& addresses);
    /// After this, no handler is called.
    void stop();

  private:
    class Shared;
    class Call;
    explicit HttpCaller(std::shared_ptr<Shared> shared);
    std::shared_ptr<Shared> shared_;
};

}  // namespace muster::rendezvous
