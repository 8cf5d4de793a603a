#include "rendezvous/base/endpoint.h"

#include "tests/support/catch.h"

using namespace muster;

TEST_CASE("every accepted spelling of an endpoint is read") {
    CHECK(parse_endpoint("gpu01", 29400).value() == Endpoint{"gpu01", 29400});
    CHECK(parse_endpoint("gpu01:1", 29400).value() == Endpoint{"gpu01", 1});
    CHECK(parse_endpoint("[::1]:65535", 29400).value() == Endpoint{"::1", 65535});
    CHECK(parse_endpoint("[fe80::1%eth0]", 29400).value() == Endpoint{"fe80::1%eth0", 29400});
    CHECK(parse_endpoint("fd00::2", 29400).value() == Endpoint{"fd00::2", 29400});
    CHECK(parse_endpoint("localhost:0", 29400).value() == Endpoint{"localhost", 0});
}

TEST_CASE("what is no endpoint is refused and quoted") {
    for (const char* bad :
         {"", ":1", "host:", "host:65536", "host:-1", "host:000001", "[::1", "[::1]x", "[]:1", "a b:1", "host:1x"}) {
        INFO(bad);
        const auto result = parse_endpoint(bad, 29400);
        REQUIRE(result.has_error());
        CHECK(result.error().code == Errc::invalid_argument);
        CHECK(result.error().context.find(bad) != std::string::npos);
    }
}

TEST_CASE("an IPv6 endpoint is described with brackets") {
    CHECK(describe(Endpoint{"::1", 29400}) == "[::1]:29400");
    CHECK(describe(Endpoint{"gpu01", 29400}) == "gpu01:29400");
}

TEST_CASE("several addresses of one host stand in brackets too, and are read again") {
    const Endpoint several{"10.0.0.1,fd00::1", 29400};
    CHECK(describe(several) == "[10.0.0.1,fd00::1]:29400");
    CHECK(parse_endpoint(describe(several), 0).value() == several);
    CHECK(describe(Endpoint{"10.0.0.1,10.0.1.1", 1}) == "[10.0.0.1,10.0.1.1]:1");
    CHECK(parse_endpoint("10.0.0.1,10.0.1.1:1", 0).has_error());
}

TEST_CASE("loopback names and addresses are known") {
    for (const char* yes : {"localhost", "127.0.0.1", "127.8.9.10", "::1"}) CHECK(is_loopback(yes));
    for (const char* no : {"gpu01", "10.0.0.1", "127.0.0.1.example.org", "1270.0.0.1", "127.0.0.999"})
        CHECK_FALSE(is_loopback(no));
}

TEST_CASE("a port or a range of ports is read whole") {
    CHECK(*parse_port_range("29400") == PortRange{29400, 29400});
    CHECK(*parse_port_range("29500-29599") == PortRange{29500, 29599});
    CHECK(*parse_port_range("29500:29599") == PortRange{29500, 29599});
    CHECK(*parse_port_range("0") == PortRange{0, 0});
    CHECK(*parse_port_range("7-7") == PortRange{7, 7});
}

TEST_CASE("what is no port range is refused with the text and what is accepted") {
    for (const std::string text : {"", "x", "1-", "-1", "5-4", "65536", "1-65536", "0-5", "1-2-3", " 1", "1 ", "+1"}) {
        INFO('"' << text << '"');
        const auto range = parse_port_range(text);
        REQUIRE_FALSE(range.has_value());
        CHECK(range.error().code == Errc::invalid_argument);
        CHECK(range.error().context.find('"' + text + '"') != std::string::npos);
        CHECK(range.error().context.find("P-Q") != std::string::npos);
    }
}
