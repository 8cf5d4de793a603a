#include "rendezvous/dialects/http_dialect.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

class HttpDialect::HttpSession final : public Session {
  public:
    HttpSession(const HttpDialect& dialect, Connection& connection) : dialect_(dialect), connection_(connection) {}

    void received(std::string_view bytes, Instant now) override {
        if (is_asked_) return;
        const std::size_t bytes_max = dialect_.station_->limits().http_request_bytes_max;
        // One more than allowed is enough to know that it is too much.
        request_.append(bytes.substr(0, bytes_max + 1 - std::min(request_.size(), bytes_max)));
        auto request = parse_http_request(request_, bytes_max);
        if (!request) return dialect_.station_->refuse(connection_, request.error().context, now);
        if (!*request) return;
        is_asked_ = true;
        if (dialect_.answers_late(**request, connection_, gone_)) return;
        auto page = dialect_.objection_to(**request, connection_);
        if (!page && dialect_.streams_ && (*request)->method == "GET")
            stream_ = dialect_.streams_(**request, connection_);
        if (stream_) return connection_.establish();
        if (!page) page = dialect_.page_for(**request, now);
        connection_.send(http_response(*page, (*request)->method));
        connection_.finish("answered");
    }
    void ended(std::string_view, Instant) override {
        *gone_ = true;
        stream_.reset();  // now, because the session itself may outlive the dialect for a moment
    }

  private:
    const HttpDialect& dialect_;
    Connection& connection_;
    std::string request_;
    bool is_asked_ = false;
    std::unique_ptr<HttpStream> stream_;
    const std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
};

std::unique_ptr<Session> HttpDialect::begin(Connection& connection, Instant) {
    return std::make_unique<HttpSession>(*this, connection);
}

std::string HttpDialect::refusal(std::string_view why) const {
    return http_response({.status = 403, .body = std::string(why) + "\n"}, "GET");
}

bool HttpDialect::answers_late(const HttpRequest& request, const Connection& connection, AskerGone gone) const {
    if (!late_ || request.method != "GET" || !is_own_host(request.host, access_.names)) return false;
    return late_(request.target, connection.peer(), std::move(gone),
                 [self = std::weak_ptr(self_), id = connection.id()](const HttpPage& page) {
                     const auto dialect = self.lock();
                     auto* const asker = dialect ? (*dialect)->station_->find(id) : nullptr;
                     if (asker == nullptr || asker->closing()) return;
                     asker->send(http_response(page, "GET"));
                     asker->finish("answered");
                 });
}

bool HttpDialect::may_see(const HttpRequest& request, const Connection& connection) const {
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    return !access_.tokens || (access_.is_public && access_.is_public(path)) || is_loopback(connection.peer()) ||
           (access_.has_key && access_.has_key(connection.key_identity())) ||
           std::ranges::any_of(access_.tokens(), [&](const auto& token) {
               return same_digest(request.authorization, cat("Bearer ", token));
           });
}

std::optional<HttpPage> HttpDialect::objection_to(const HttpRequest& request, const Connection& connection) const {
    if (!is_own_host(request.host, access_.names))
        return HttpPage{.status = 421,
                        .body = cat("This daemon is not known as '", printable_line(request.host),
                                    "'. Use its address, or start musterd with --status-host NAME.\n")};
    if (request.method != "GET" && request.method != "HEAD")
        return HttpPage{.status = 405, .body = "Only GET is answered here.\n"};
    if (may_see(request, connection)) return std::nullopt;
    return HttpPage{.status = 401,
                    .body =
                        "Status pages are for who knows the job's secret. Send 'Authorization: Bearer TOKEN' with the "
                        "token that musterd --status-token prints.\n"};
}

HttpPage HttpDialect::page_for(const HttpRequest& request, Instant now) const {
    if (auto page = pages_(request, now)) return std::move(*page);
    return {.status = 404,
            .body = "There are /healthz, /status, /metrics, /api/v1/jobs/JOB/events, and / for a browser.\n"};
}

}  // namespace muster::rendezvous
