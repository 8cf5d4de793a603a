#include "rendezvous/rounds/missing_hosts.h"

#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

std::map<Incarnation, Member> joined(const std::vector<std::string>& hosts, const std::string& expected) {
    std::map<Incarnation, Member> members;
    for (const auto& host : hosts) {
        auto& member = members[members.size() + 1];
        member.node.host = host;
        if (members.size() == 1) member.join.expected_hosts = expected;
    }
    return members;
}

}  // namespace

TEST_CASE("hosts that the scheduler gave to the job and that have not come are named, the first ten of many") {
    CHECK(missing_hosts(joined({"gpu01.cluster", "gpu03"}, "gpu[01-04]")) == "gpu02, gpu04");
    CHECK(missing_hosts(joined({"gpu01", "gpu02"}, "gpu[01-02]")).empty());
    CHECK(missing_hosts(joined({"n1"}, "n[1-40]")) == "n2, n3, n4, n5, n6, n7, n8, n9, n10, n11 and 29 more");
    CHECK(missing_hosts(joined({"n1", "n1", "n1"}, "n[1-2]")) == "n2");
}

TEST_CASE("no name is better than a wrong one") {
    CHECK(missing_hosts({}).empty());
    CHECK(missing_hosts(joined({"gpu01"}, "")).empty());
    CHECK(missing_hosts(joined({"gpu01"}, "gpu[")).empty());
    CHECK(missing_hosts(joined({"gpu01"}, "slurm-node[1-4]")).empty());
}

TEST_CASE("names of a peer are printable, and fit into a sentence") {
    CHECK(missing_hosts(joined({"a"}, "a,b\x1b[1")).find('\x1b') == std::string::npos);
    CHECK(missing_hosts(joined({"a"}, cat("a,", std::string(4'000, 'b')))).size() < 4'096);
}
