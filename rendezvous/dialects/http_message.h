// The subset of HTTP for status pages: one request without a body, one answer, close. Pure.
//
// Each answer tells a browser to run no script but ours, and to give it to no page of another site.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::rendezvous {

struct HttpRequest {
    std::string method;
    std::string target;         ///< path and query as sent
    std::string host;           ///< of the header Host, with its port as sent; empty: there is none
    std::string authorization;  ///< of the header of that name
    std::string accept = {};    ///< of the header of that name
    std::string accept_encoding = {};
    std::string fetch_site = {};  ///< of the header Sec-Fetch-Site, which browsers send and pages cannot change
};

/// The request at the front of `bytes`, or nothing while its headers are not complete. Errors: bad_frame for bytes that
/// are no HTTP/1 request, limit_exceeded for headers longer than `bytes_max`. A body is ignored.
Result<std::optional<HttpRequest>> parse_http_request(std::string_view bytes, std::size_t bytes_max);

struct HttpPage {
    unsigned status = 200;
    std::string_view type = "text/plain; charset=utf-8";
    std::string body;
    std::string_view encoding = {};  ///< of the body: the header Content-Encoding; empty: there is none
};

/// True when a browser that was led here by a false name service entry cannot have sent this Host: it is an address,
/// localhost or one of `names`, with or without a port. Without a Host no browser sent it.
bool is_own_host(std::string_view host, const std::vector<std::string>& names);

/// JOB in a target "/api/v1/jobs/JOB" + `behind`, with or without a query; still encoded. Nothing: another target.
std::optional<std::string_view> job_in_target(std::string_view target, std::string_view behind);

/// The value of a name in the query of `target`, still encoded. Nothing: it has none.
std::optional<std::string_view> query_value(std::string_view target, std::string_view name);

/// The whole answer; it says that the connection closes. A HEAD request gets no body.
std::string http_response(const HttpPage& page, std::string_view method);

/// The head of an answer that goes on until the connection ends.
std::string http_stream_head(std::string_view type);

}  // namespace muster::rendezvous
