#include "rendezvous/base/sockets/socket_address.h"

#include <arpa/inet.h>

#include "tests/support/catch.h"

using namespace muster;

TEST_CASE("numeric addresses of both families come back as they were written") {
    for (const char* text : {"127.0.0.1", "10.0.0.255", "::1", "fd00::7", "::"}) {
        INFO(text);
        const auto address = SocketAddress::from_numeric(text, 29400);
        REQUIRE(address.has_value());
        CHECK(address->numeric() == text);
        CHECK(address->port() == 29400);
        const auto again = SocketAddress::from(address->data());
        REQUIRE(again.has_value());
        CHECK(again->numeric() == text);
    }
    CHECK(SocketAddress::from_numeric("::", 0)->is_any());
    CHECK(SocketAddress::from_numeric("fe80::1%7", 0)->is_link_local());
    CHECK_FALSE(SocketAddress::from_numeric("fd00::1", 0)->is_link_local());
}

TEST_CASE("what is no numeric address is none") {
    for (const char* text : {"", "localhost", "10.0.0", "10.0.0.256", "::g", "[::1]", "1.2.3.4:5"}) {
        INFO(text);
        CHECK_FALSE(SocketAddress::from_numeric(text, 1).has_value());
    }
    sockaddr other{};
    other.sa_family = AF_UNIX;
    CHECK_FALSE(SocketAddress::from(&other).has_value());
}

TEST_CASE("IPv4 that came in through IPv6 is shown as IPv4") {
    CHECK(SocketAddress::from_numeric("::ffff:10.1.2.3", 1)->numeric() == "10.1.2.3");
}

TEST_CASE("a source is an address, or the IPv6 network in which a host takes as many as it likes") {
    CHECK(source_of("10.1.2.3") == "10.1.2.3");
    CHECK(source_of("2001:db8:0:7:aaaa::1") == "2001:db8:0:7::/64");
    CHECK(source_of("2001:db8:0:7::1") == source_of("2001:db8:0:7:ffff:ffff:ffff:ffff"));
    CHECK(source_of("2001:db8:0:8::1") != source_of("2001:db8:0:7::1"));
    CHECK(source_of("fe80::1%7") == "fe80::1%7");
    CHECK(source_of("fe80::1") == "fe80::1");
    CHECK(source_of("") == "");
}
