#include "rendezvous/base/sockets/address_set.h"

#include "rendezvous/base/sockets/own_addresses.h"
#include "tests/support/catch.h"

using namespace muster;

namespace {

AddressSet set_of(std::string_view list) {
    auto parsed = AddressSet::parse(list);
    REQUIRE(parsed.has_value());
    return *std::move(parsed);
}

}  // namespace

TEST_CASE("a network has its addresses and no others, at every length") {
    const auto set = set_of("10.0.0.0/8, 192.168.4.0/22,172.16.5.7,fd00:1::/33,fe80::7");
    for (const char* text : {"10.255.0.1", "192.168.7.255", "172.16.5.7", "fd00:1::9", "fd00:1:7fff::", "fe80::7"}) {
        INFO(text);
        CHECK(set.contains(std::string(text)));
        CHECK(set.contains(*SocketAddress::from_numeric(text, 80)));
    }
    for (const char* text :
         {"11.0.0.1", "192.168.8.0", "192.168.3.255", "172.16.5.8", "fd00:1:8000::", "fd01::", "::1"}) {
        INFO(text);
        CHECK_FALSE(set.contains(std::string(text)));
    }
    CHECK(set_of("0.0.0.0/0").contains(std::string("203.0.113.9")));
    CHECK_FALSE(set_of("0.0.0.0/0").contains(std::string("fd00::1")));
    CHECK(set_of("::/0").contains(std::string("203.0.113.9")));
}

TEST_CASE("IPv4 that is mapped into IPv6 is IPv4, and a zone means nothing") {
    AddressSet set = set_of("10.1.0.0/16");
    CHECK(set.contains(std::string("::ffff:10.1.2.3")));
    CHECK_FALSE(set.contains(std::string("::10.1.2.3")));
    set.add("fe80::2%eth0");
    CHECK(set.contains(std::string("fe80::2%lo")));
    CHECK(set.contains(std::string("fe80::2")));
    set.add("::ffff:192.0.2.1");
    CHECK(set.contains(std::string("192.0.2.1")));
    set.add("gpu07");  // a name is no address
    CHECK_FALSE(set.contains(std::string("gpu07")));
}

TEST_CASE("what is no list of networks is refused with its wrong part") {
    for (const char* part : {"10.0.0.0/33", "fd00::/129", "10.0.0/8", "gpu07", "10.0.0.0/", "10.0.0.0/-1", "/8"}) {
        const auto wrong = AddressSet::parse(std::string("10.0.0.1,") + part);
        INFO(part);
        REQUIRE_FALSE(wrong.has_value());
        CHECK(wrong.error().context.find(part) != std::string::npos);
    }
    CHECK_FALSE(AddressSet::parse("").has_value());
    CHECK_FALSE(AddressSet::parse("10.0.0.1,").has_value());
}

TEST_CASE("link-local addresses are not named to other hosts, unless a host has no others") {
    const auto named = [](const std::vector<std::string>& all) {
        std::vector<OwnAddress> own;
        for (const auto& text : all) {
            OwnAddress one{.address = *SocketAddress::from_numeric(text, 0), .interface = "x"};
            one.is_loopback = text == "127.0.0.1";
            own.push_back(std::move(one));
        }
        std::vector<std::string> left;
        for (const auto& one : known_elsewhere(own)) left.push_back(one.address.numeric());
        return left;
    };
    using All = std::vector<std::string>;
    CHECK(named({"127.0.0.1", "10.0.0.1", "169.254.3.4", "fe80::1", "fd00::1"}) ==
          All{"127.0.0.1", "10.0.0.1", "fd00::1"});
    CHECK(named({"127.0.0.1", "169.254.3.4", "fe80::1"}) == All{"127.0.0.1", "169.254.3.4"});
}

TEST_CASE("this host's own addresses are told from others") {
    OwnAddresses own;
    CHECK(own.contains("127.3.2.1"));
    CHECK(own.contains("::1"));
    for (const auto& one : list_own_addresses()) CHECK(own.contains(one.address.numeric()));
    CHECK_FALSE(own.contains("203.0.113.9"));
}
