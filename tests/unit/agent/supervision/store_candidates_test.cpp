#include "agent/supervision/store_candidates.h"

#include "tests/support/catch.h"

namespace muster::agent {

using List = std::vector<std::string>;

TEST_CASE("the owner's order stays, but what this host has as well is left out") {
    CHECK(store_candidates({"10.0.0.1", "fd00::1"}, {"10.0.0.2", "127.0.0.1"}, "10.0.0.1") ==
          List{"10.0.0.1", "fd00::1"});
    CHECK(store_candidates({"172.17.0.1", "10.0.0.1"}, {"10.0.0.2", "172.17.0.1"}, "10.0.0.9") == List{"10.0.0.1"});
}

TEST_CASE("on one host all addresses are its own, and their order stays") {
    CHECK(store_candidates({"10.0.0.1", "172.17.0.1"}, {"172.17.0.1", "10.0.0.1", "127.0.0.1"}, "127.0.0.1") ==
          List{"10.0.0.1", "172.17.0.1"});
}

TEST_CASE("a link-local address gets the zone by which this node reaches the daemon") {
    CHECK(store_candidates({"fe80::1%ib0"}, {}, "fe80::9%eth2") == List{"fe80::1%eth2"});
    CHECK(store_candidates({"fe80::1%ib0"}, {}, "10.0.0.9") == List{"fe80::1%ib0"});
}

}  // namespace muster::agent
