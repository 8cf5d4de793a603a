// Which addresses a rank tells the others: interfaces as the kernel lists them, and the user's words about them.
#include "worker_runtime/tcp/mesh/interface_address.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace muster::runtime {

namespace {

OwnAddress at(const std::string& address, const std::string& interface, bool is_running = true) {
    return {.address = SocketAddress::from_numeric(address, 0).value(),
            .interface = interface,
            .is_loopback = interface == "lo",
            .is_running = is_running};
}

using Addresses = std::vector<std::string>;

/// A host on two networks, with a bridge for containers.
const std::vector<OwnAddress> host{at("127.0.0.1", "lo"),  at("172.17.0.1", "docker0", false),
                                   at("10.1.0.5", "eth0"), at("fd00:1::5", "eth0"),
                                   at("10.2.0.5", "ib0"),  at("::1", "lo")};

Addresses chosen(const AddressChoice& choice) {
    return choose_addresses(host, choice).value();
}

}  // namespace

TEST_CASE("the address that reached the store comes first, then its interface's, then what is up, in its family") {
    CHECK(chosen({.towards = "10.2.0.5"}) == Addresses{"10.2.0.5", "10.1.0.5", "fd00:1::5", "172.17.0.1"});
    CHECK(chosen({.towards = "10.1.0.5"}) == Addresses{"10.1.0.5", "fd00:1::5", "10.2.0.5", "172.17.0.1"});
    CHECK(chosen({.towards = "fd00:1::5"}) == Addresses{"fd00:1::5", "10.1.0.5", "10.2.0.5", "172.17.0.1"});
    CHECK(chosen({}) == Addresses{"10.1.0.5", "fd00:1::5", "10.2.0.5", "172.17.0.1"});
}

TEST_CASE("loopback is told where it reached the store, behind the interface that the agent knows to lead elsewhere") {
    CHECK(chosen({.towards = "127.0.0.1"}).front() == "127.0.0.1");
    CHECK(chosen({.towards = "127.0.0.1", .agents = "ib0"}) ==
          Addresses{"10.2.0.5", "127.0.0.1", "10.1.0.5", "fd00:1::5", "172.17.0.1"});
    CHECK(chosen({.towards = "10.1.0.5", .agents = "eth0"}).front() == "10.1.0.5");
}

TEST_CASE("named interfaces restrict, in their order; the one that reached the store stays first") {
    CHECK(chosen({.towards = "10.1.0.5", .names = "ib"}) == Addresses{"10.2.0.5"});
    CHECK(chosen({.names = "ib0,eth"}) == Addresses{"10.2.0.5", "10.1.0.5", "fd00:1::5"});
    CHECK(chosen({.towards = "10.1.0.5", .names = "ib0, eth0"}) == Addresses{"10.1.0.5", "10.2.0.5", "fd00:1::5"});
    CHECK(chosen({.names = "=eth0,ib"}) == Addresses{"10.1.0.5", "fd00:1::5"});
    CHECK(chosen({.names = "lo"}) == Addresses{"127.0.0.1", "::1"});
    // NCCL's way to leave some out.
    CHECK(chosen({.towards = "10.1.0.5", .names = "^docker,ib"}) == Addresses{"10.1.0.5", "fd00:1::5"});
    CHECK(chosen({.towards = "10.1.0.5", .names = "^=docker"}).size() == 4);
}

TEST_CASE("link-local addresses are told only where they reached the store or are all that a named interface has") {
    std::vector<OwnAddress> bare{at("::1", "lo"), at("fe80::5", "eth0"), at("fd00:1::5", "eth0")};
    const auto local = bare[1].address.numeric();
    CHECK(choose_addresses(bare, {}).value() == Addresses{"fd00:1::5"});
    CHECK(choose_addresses(bare, {.towards = local}).value() == Addresses{local, "fd00:1::5"});
    CHECK(choose_addresses(bare, {.names = "eth0"}).value() == Addresses{"fd00:1::5", local});
}

TEST_CASE("a host with many addresses tells a few, and an address only once") {
    std::vector<OwnAddress> many;
    for (int i = 0; i < 20; ++i) many.push_back(at("10.0.0." + std::to_string(i + 1), "eth" + std::to_string(i)));
    many.push_back(many.front());
    const auto told = choose_addresses(many, {.towards = "10.0.0.20"}).value();
    CHECK(told.size() == addresses_sent_max);
    CHECK(told.front() == "10.0.0.20");
    many = {many.front(), many.front()};
    CHECK(choose_addresses(many, {}).value().size() == 1);
}

TEST_CASE("names that fit nothing are an error that lists the interfaces; an unlisted address still serves") {
    const auto none = choose_addresses(host, {.towards = "10.1.0.5", .names = "wlan"});
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code == Errc::not_found);
    CHECK(none.error().context == "no interface that is up matches \"wlan\"; there are: lo, docker0, eth0, ib0");
    CHECK(choose_addresses({}, {.towards = "10.9.0.1"}).value() == Addresses{"10.9.0.1"});
    CHECK(choose_addresses({at("127.0.0.1", "lo")}, {.towards = "127.0.0.1", .names = "^lo,docker"}).value() ==
          Addresses{"127.0.0.1"});
    CHECK_FALSE(choose_addresses({}, {}).has_value());
}

}  // namespace muster::runtime
