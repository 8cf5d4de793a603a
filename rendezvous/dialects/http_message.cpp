#include "rendezvous/dialects/http_message.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>

#include "rendezvous/base/sockets/socket_address.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace http = boost::beast::http;

namespace {

/// Of every answer. The page needs no more than this, so a hostile name that became markup would do nothing.
constexpr std::string_view common_headers =
    "Server: muster\r\nCache-Control: no-store\r\nConnection: close\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nX-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n";

}  // namespace

Result<std::optional<HttpRequest>> parse_http_request(std::string_view bytes, std::size_t bytes_max) {
    http::request_parser<http::empty_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(std::min<std::size_t>(bytes_max, 1u << 20)));
    boost::system::error_code failure;
    parser.put(boost::asio::buffer(bytes.data(), bytes.size()), failure);
    const bool incomplete = !failure ? !parser.is_header_done() : failure == http::error::need_more;
    if (failure == http::error::header_limit) {
        return Error{Errc::limit_exceeded, cat("the request's headers are longer than ", bytes_max, " bytes")};
    }
    if (incomplete) return std::optional<HttpRequest>();
    // A body where none is expected is no reason to refuse: nobody reads it.
    if (!parser.is_header_done()) return Error{Errc::bad_frame, cat("no HTTP request: ", failure.message())};
    const auto& request = parser.get();
    return std::optional(HttpRequest{.method = std::string(request.method_string()),
                                     .target = std::string(request.target()),
                                     .host = std::string(request[http::field::host]),
                                     .authorization = std::string(request[http::field::authorization]),
                                     .accept = std::string(request[http::field::accept]),
                                     .accept_encoding = std::string(request[http::field::accept_encoding]),
                                     .fetch_site = std::string(request["Sec-Fetch-Site"])});
}

bool is_own_host(std::string_view host, const std::vector<std::string>& names) {
    if (host.empty()) return true;
    if (host.front() == '[') return host.find(']') != std::string_view::npos;  // an IPv6 address
    host = host.substr(0, host.find(':'));
    if (host.ends_with('.')) host.remove_suffix(1);
    const auto is = [host](std::string_view name) {
        return std::ranges::equal(host, name,
                                  [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    };
    if (SocketAddress::from_numeric(std::string(host), 0) || is("localhost")) return true;
    return std::ranges::any_of(names, is);
}

std::optional<std::string_view> job_in_target(std::string_view target, std::string_view behind) {
    constexpr std::string_view before = "/api/v1/jobs/";
    const auto path = target.substr(0, target.find('?'));
    if (!path.starts_with(before) || !path.ends_with(behind) || path.size() <= before.size() + behind.size())
        return std::nullopt;
    return path.substr(before.size(), path.size() - before.size() - behind.size());
}

std::optional<std::string_view> query_value(std::string_view target, std::string_view name) {
    const auto path = target.find('?');
    if (path == target.npos) return std::nullopt;
    const auto query = target.substr(path + 1);
    for (const auto part : split(query, '&'))
        if (part.starts_with(name) && part.substr(name.size()).starts_with('=')) return part.substr(name.size() + 1);
    return std::nullopt;
}

std::string http_stream_head(std::string_view type) {
    return cat("HTTP/1.1 200 OK\r\n", common_headers, "X-Accel-Buffering: no\r\nContent-Type: ", type, "\r\n\r\n");
}

std::string http_response(const HttpPage& page, std::string_view method) {
    const std::string_view reason = http::obsolete_reason(http::int_to_status(page.status));
    std::string out = cat("HTTP/1.1 ", page.status, " ", reason, "\r\n", common_headers, "Content-Type: ", page.type,
                          page.encoding.empty() ? "" : "\r\nContent-Encoding: ", page.encoding,
                          "\r\nContent-Length: ", page.body.size(), "\r\n\r\n");
    if (method != "HEAD") out += page.body;
    return out;
}

}  // namespace muster::rendezvous
