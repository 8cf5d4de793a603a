#include "rendezvous/servers/metrics_port.h"

#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/dialects/http_dialect.h"
#include "rendezvous/dialects/metrics_answer.h"
#include "rendezvous/net/station.h"

namespace muster::rendezvous {

namespace {

/// A few scrapers and a person. The oldest connection gives way to a new one.
constexpr std::size_t connections_max = 32;
constexpr std::size_t of_one_source_max = 8;

NetLimits limits_of_port() {
    NetLimits limits;
    limits.connections_max = connections_max;
    limits.unproven_per_source_max = of_one_source_max;
    // A scraper that reads nothing for so long is closed by the kernel. Prometheus' own timeout is 10 s by default.
    limits.unread_max = limits.handshake_timeout;
    limits.memory_bytes_max = std::size_t{64} << 20;
    return limits;
}

HttpDialect::LatePages metrics_page(EventLoop& loop, MetricsPortConfig& config) {
    return [&loop, page = std::move(config.page), post = std::move(config.post)](
               const HttpRequest& request, const Connection&, AskerGone gone, std::function<void(HttpPage)> answer) {
        if (request.target.substr(0, request.target.find('?')) != "/metrics") return false;
        post([&loop, page, request, gone = std::move(gone), answer = std::move(answer)] {
            if (*gone) return;
            loop.post([answer, found = metrics_answer(request, page)] { answer(found); });
        });
        return true;
    };
}

}  // namespace

struct MetricsPort::Server {
    Server(EventLoop& loop, std::unique_ptr<Listener> listener, MetricsPortConfig config)
        : http([](const HttpRequest&, Instant) { return HttpPage{.status = 404, .body = "There is /metrics.\n"}; },
               {.names = {config.listen.address},
                .name_option = "--metrics-listen NAME:PORT",
                .keys = config.keys,
                .metrics_alone = true,
                .has_key = {},
                .is_public = {}},
               metrics_page(loop, config)),
          station(loop, std::move(listener), {.http = &http, .http_judges_users = true}, limits_of_port(),
                  std::make_shared<MemoryBudget>(limits_of_port().memory_bytes_max)) {
        http.attach(station);
    }
    HttpDialect http;
    Station station;  // last: its destructor ends sessions of the above
};

MetricsPort::MetricsPort(EventLoop& loop) : loop_(loop) {}

Result<std::unique_ptr<MetricsPort>> MetricsPort::open(EventLoop& loop, MetricsPortConfig config) {
    auto listener = MUSTER_TRY(Listener::open(config.listen));
    std::unique_ptr<MetricsPort> opened(new MetricsPort(loop));
    opened->place_ = describe(Endpoint{listener->address(), listener->port()});
    const auto serving = loop.ask([&] {
        opened->server_ = std::make_unique<Server>(loop, std::move(listener), std::move(config));
        return opened->server_->station.start();
    });
    if (!serving) return serving.error();
    return opened;
}

MetricsPort::~MetricsPort() {
    loop_.invoke([&] { server_.reset(); });
}

}  // namespace muster::rendezvous
