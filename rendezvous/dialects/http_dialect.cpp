#include "rendezvous/dialects/http_dialect.h"

#include <string>
#include <utility>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

class HttpDialect::HttpSession final : public Session {
  public:
    HttpSession(const HttpDialect& dialect, Connection& connection) : dialect_(dialect), connection_(connection) {}

    void received(std::string_view bytes, Instant now) override {
        const std::size_t bytes_max = dialect_.station_->limits().http_request_bytes_max;
        // One more than allowed is enough to know that it is too much.
        request_.append(bytes.substr(0, bytes_max + 1 - std::min(request_.size(), bytes_max)));
        auto request = parse_http_request(request_, bytes_max);
        if (!request) return dialect_.station_->refuse(connection_, request.error().context, now);
        if (!*request) return;
        connection_.send(http_response(dialect_.page_for(**request), (*request)->method));
        connection_.finish("answered");
    }
    void ended(std::string_view, Instant) override {}

  private:
    const HttpDialect& dialect_;
    Connection& connection_;
    std::string request_;
};

std::unique_ptr<Session> HttpDialect::begin(Connection& connection, Instant) {
    return std::make_unique<HttpSession>(*this, connection);
}

std::string HttpDialect::refusal(std::string_view why) const {
    return http_response({.status = 403, .body = std::string(why) + "\n"}, "GET");
}

HttpPage HttpDialect::page_for(const HttpRequest& request) const {
    if (request.method != "GET" && request.method != "HEAD") {
        return {.status = 405, .body = "Only GET is answered here.\n"};
    }
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    if (auto page = pages_(path)) return std::move(*page);
    return {.status = 404, .body = "There are /healthz, /status and /metrics.\n"};
}

}  // namespace muster::rendezvous
