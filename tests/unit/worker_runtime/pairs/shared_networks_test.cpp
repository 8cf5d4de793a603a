#include "worker_runtime/pairs/shared_networks.h"

#include "tests/support/catch.h"

using namespace muster::runtime;

namespace {

std::vector<std::string> names_of(const std::vector<std::string>& by_node) {
    std::vector<std::string> names;
    for (const auto& network : shared_networks(by_node)) names.push_back(network.name);
    return names;
}

}  // namespace

TEST_CASE("two networks of several nodes are both tested, with the nodes that are in them") {
    const auto found =
        shared_networks({"10.1.0.0/24=10.1.0.1 10.2.0.0/24=10.2.0.1", "10.1.0.0/24=10.1.0.2 fd00::/64=fd00::2",
                         "10.1.0.0/24=10.1.0.3 10.2.0.0/24=10.2.0.3"});
    REQUIRE(found.size() == 2);
    CHECK(found[0].name == "10.1.0.0/24");
    CHECK(found[0].nodes == NodeGroup{0, 1, 2});
    CHECK(found[1].nodes == NodeGroup{0, 2});
}

TEST_CASE("where no node has two networks the test of pairs is enough") {
    CHECK(names_of({}).empty());
    CHECK(names_of({"10.1.0.0/24=10.1.0.1", "10.1.0.0/24=10.1.0.2", ""}).empty());
    // Racks with networks of their own.
    CHECK(names_of({"10.1.0.0/24=10.1.0.1", "10.1.0.0/24=10.1.0.2", "10.2.0.0/24=10.2.0.1", "10.2.0.0/24=10.2.0.2"})
              .empty());
}

TEST_CASE("a network inside each host is none between hosts") {
    // Docker's bridge has the same address everywhere, and a network that one node has leads to no other.
    CHECK(names_of({"10.1.0.0/24=10.1.0.1 172.17.0.0/16=172.17.0.1 10.9.0.0/24=10.9.0.1",
                    "10.1.0.0/24=10.1.0.2 172.17.0.0/16=172.17.0.1"})
              .empty());
    // One address that two of three nodes have by mistake is a fault to find.
    CHECK(names_of({"10.1.0.0/24=10.1.0.1 10.2.0.0/24=10.2.0.1", "10.1.0.0/24=10.1.0.2 10.2.0.0/24=10.2.0.2",
                    "10.1.0.0/24=10.1.0.3 10.2.0.0/24=10.2.0.2"})
              .size() == 2);
}

TEST_CASE("each node finds its group in a round's text, with and without a network") {
    CHECK(write_groups({{0, 3}, {1, 2, 5}}) == "0-3 1-2-5");
    for (const std::string network : {"", "10.1.0.0/24 ", "fd00::/64 "}) {
        const auto text = network + "0-3 1-2-5 lost-permille=3";
        CHECK(own_group(text, 3) == NodeGroup{0, 3});
        CHECK(own_group(text, 1) == NodeGroup{1, 2, 5});
        CHECK(own_group(text, 4).empty());
    }
    CHECK(address_in("10.1.0.0/24=10.1.0.3", "0-3").empty());
}

TEST_CASE("a node's address in a network is found by the network's name") {
    CHECK(address_in("10.1.0.0/24=10.1.0.3 fd00::/64=fd00::3", "fd00::/64") == "fd00::3");
    CHECK(address_in("10.1.0.0/24=10.1.0.3,1500 fd00::/64=fd00::3,1500", "fd00::/64") == "fd00::3");
    CHECK(address_in("10.1.0.0/24=10.1.0.3", "10.1.0.0/2").empty());
    CHECK(address_in("nonsense 10.1.0.0/24", "10.1.0.0/24").empty());
}

TEST_CASE("MTUs are compared between nodes of one network alone") {
    const auto found = unlike_mtus({"10.1.0.0/24=10.1.0.1,9000 10.2.0.0/24=10.2.0.1,1500",
                                    "10.1.0.0/24=10.1.0.2,1500 10.2.0.0/24=10.2.0.2,1500", "10.1.0.0/24=10.1.0.3,9000",
                                    "10.1.0.0/24=10.1.0.4"});
    REQUIRE(found.size() == 2);
    CHECK(found[0].network == "10.1.0.0/24");
    CHECK(found[0].mtu == 1500);
    CHECK(found[0].nodes == NodeGroup{1});
    CHECK(found[1].mtu == 9000);
    CHECK(found[1].nodes == NodeGroup{0, 2});
    // Racks behind a router, and a bridge inside each host.
    CHECK(unlike_mtus({"10.1.0.0/24=10.1.0.1,9000", "10.1.0.0/24=10.1.0.2,9000", "10.2.0.0/24=10.2.0.1,1500",
                       "10.2.0.0/24=10.2.0.2,1500"})
              .empty());
    CHECK(unlike_mtus({"172.17.0.0/16=172.17.0.1,1500", "172.17.0.0/16=172.17.0.1,1400"}).empty());
}
