#include "rendezvous/dialects/http_dialect.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/hmac_sha256.h"
#include "rendezvous/base/sockets/own_addresses.h"
#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

std::string_view path_of(const HttpRequest& request) {
    return std::string_view(request.target).substr(0, request.target.find('?'));
}

}  // namespace

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
        auto page = dialect_.objection_to(**request, connection_);
        if (!page && dialect_.answers_late(**request, connection_, gone_)) return;
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

HttpDialect::HttpDialect(Pages pages, Access access, LatePages late, Streams streams)
    : pages_(std::move(pages)), access_(std::move(access)), late_(std::move(late)), streams_(std::move(streams)) {
    const auto host = host_name();
    access_.names.push_back(host.substr(0, host.find('.')));
    access_.names.push_back(host);
}

bool HttpDialect::is_other_user(const Connection& connection) {
    return !connection.objection().empty() && !connection.may_use_http();
}

std::unique_ptr<Session> HttpDialect::begin(Connection& connection, Instant) {
    return std::make_unique<HttpSession>(*this, connection);
}

std::string HttpDialect::refusal(std::string_view why) const {
    return http_response({.status = 403, .body = std::string(why) + "\n"}, "GET");
}

bool HttpDialect::answers_late(const HttpRequest& request, const Connection& connection, AskerGone gone) const {
    return late_ &&
           late_(request, connection, std::move(gone),
                 [self = std::weak_ptr(self_), id = connection.id(), method = request.method](const HttpPage& page) {
                     const auto dialect = self.lock();
                     auto* const asker = dialect ? (*dialect)->station_->find(id) : nullptr;
                     if (asker == nullptr || asker->closing()) return;
                     asker->send(http_response(page, method));
                     asker->finish("answered");
                 });
}

bool HttpDialect::may_see(const HttpRequest& request, const Connection& connection) const {
    const bool is_open = !access_.keys || (access_.is_public && access_.is_public(path_of(request))) ||
                         is_loopback(connection.peer()) ||
                         (access_.has_key && access_.has_key(connection.key_identity()));
    if (is_open && !is_other_user(connection)) return true;
    const auto has = [&](const std::string& token) {
        return same_digest(request.authorization, cat("Bearer ", token));
    };
    return access_.keys && std::ranges::any_of(access_.keys({}), [&](const auto& key) {
               return (!access_.metrics_alone && has(status_token(key))) ||
                      (is_for_scrapers(request) && has(metrics_token(key)));
           });
}

bool HttpDialect::is_for_scrapers(const HttpRequest& request) const {
    return access_.metrics_alone || path_of(request) == "/metrics";
}

std::optional<HttpPage> HttpDialect::objection_to(const HttpRequest& request, const Connection& connection) const {
    if (!is_own_host(request.host, access_.names))
        return HttpPage{
            .status = 421,
            .body = cat("This server is not known as '", printable_line(request.host),
                        "'. Use its address or the name of its host; ", access_.name_option, " adds a name.\n")};
    if (request.method != "GET" && request.method != "HEAD")
        return HttpPage{.status = 405, .body = "Only GET is answered here.\n"};
    if (may_see(request, connection)) return std::nullopt;
    const auto token = cat("send 'Authorization: Bearer TOKEN', with the token that musterd --",
                           is_for_scrapers(request) ? "metrics" : "status", "-token prints");
    if (is_other_user(connection))
        return HttpPage{.status = 403,
                        .body = cat(connection.objection(), access_.keys ? cat("; or ", token) : std::string(), "\n")};
    return HttpPage{.status = 401, .body = cat("Status pages are for who knows the job's secret: ", token, ".\n")};
}

HttpPage HttpDialect::page_for(const HttpRequest& request, Instant now) const {
    if (auto page = pages_(request, now)) return std::move(*page);
    return {.status = 404,
            .body = "There are /healthz, /status, /metrics, /api/v1/jobs/JOB/events, and / for a browser.\n"};
}

}  // namespace muster::rendezvous
