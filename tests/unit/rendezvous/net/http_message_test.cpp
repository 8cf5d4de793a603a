#include "rendezvous/dialects/http_message.h"

#include "rendezvous/base/text/percent.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

const std::string request = "GET /status?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";

}  // namespace

TEST_CASE("a request is read when its headers are complete, and not before") {
    for (std::size_t size = 0; size < request.size(); ++size) {
        INFO("the first " << size << " bytes");
        const auto parsed = parse_http_request(std::string_view(request).substr(0, size), 8192);
        REQUIRE(parsed.has_value());
        CHECK_FALSE(parsed->has_value());
    }
    const auto parsed = parse_http_request(request, 8192);
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->has_value());
    CHECK((*parsed)->method == "GET");
    CHECK((*parsed)->target == "/status?x=1");
}

TEST_CASE("a body that nobody asked for is ignored") {
    const auto parsed = parse_http_request("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 8192);
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->has_value());
    CHECK((*parsed)->method == "POST");
}

TEST_CASE("letters that are no request are a bad frame") {
    for (const std::string bytes :
         {"hello world, this is not http\r\n\r\n", "GET\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n\r\n"}) {
        INFO(bytes);
        const auto parsed = parse_http_request(bytes, 8192);
        REQUIRE_FALSE(parsed.has_value());
        CHECK(parsed.error().code == Errc::bad_frame);
    }
}

TEST_CASE("headers beyond the limit are refused, also when they never end") {
    const std::string endless = "GET / HTTP/1.1\r\nX: " + std::string(9000, 'x');
    for (const std::string& bytes : {endless, endless + "\r\n\r\n", std::string(9000, 'G')}) {
        const auto parsed = parse_http_request(bytes, 8192);
        REQUIRE_FALSE(parsed.has_value());
    }
    CHECK(parse_http_request(endless, 8192).error().code == Errc::limit_exceeded);
}

TEST_CASE("an answer says its length and that the connection closes; HEAD gets no body") {
    const auto answer = http_response({.status = 404, .body = "no"}, "GET");
    CHECK(answer.starts_with("HTTP/1.1 404 Not Found\r\n"));
    CHECK(answer.find("Content-Length: 2\r\n") != std::string::npos);
    CHECK(answer.find("Connection: close\r\n") != std::string::npos);
    CHECK(answer.ends_with("\r\n\r\nno"));
    CHECK(http_response({.status = 200, .body = "no"}, "HEAD").ends_with("\r\n\r\n"));
}

TEST_CASE("every answer allows a browser our own scripts only, and a stream has no length") {
    for (const auto& answer : {http_response({.status = 404, .body = "no"}, "GET"), http_stream_head("text/x")}) {
        CHECK(answer.find("\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; ") != answer.npos);
        CHECK(answer.find("\r\nX-Content-Type-Options: nosniff\r\n") != answer.npos);
        CHECK(answer.find("unsafe") == answer.npos);
    }
    CHECK(http_stream_head("text/x").find("Content-Length") == std::string::npos);
}

TEST_CASE("a query's values are found by their whole name and decoded") {
    CHECK(query_value("/x?job=a%20b&after=3", "job") == "a%20b");
    CHECK(query_value("/x?job=a%20b&after=3", "after") == "3");
    CHECK(query_value("/x?job=", "job") == "");
    CHECK_FALSE(query_value("/x?myjob=a", "job"));
    CHECK_FALSE(query_value("/x?jobs=a", "job"));
    CHECK_FALSE(query_value("/x", "job"));
    CHECK(percent_decoded("a%20b%2F%e6") == "a b/\xe6");
    for (const auto* wrong : {"%", "%4", "%zz", "a%"}) CHECK_FALSE(percent_decoded(wrong));
}

TEST_CASE("a page's name must be one that no false name service entry can bring here") {
    const std::vector<std::string> names{"head", "head.cluster.example"};
    for (const auto* host : {"", "127.0.0.1", "10.1.2.3:29400", "[::1]:29400", "[fe80::1]", "localhost:29400",
                             "LOCALHOST", "head:29400", "Head.cluster.example", "head."})
        CHECK(is_own_host(host, names));
    for (const auto* host : {"evil.example", "evil.example:29400", "head.evil.example", "localhost.evil.example",
                             "127.0.0.1.evil.example", "head2"})
        CHECK_FALSE(is_own_host(host, names));
}
