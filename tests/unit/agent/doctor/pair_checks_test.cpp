#include "agent/doctor/doctor_report.h"
#include "agent/doctor/links_svg.h"
#include "tests/support/catch.h"
#include "tests/unit/agent/doctor/clean_node.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

TEST_CASE("what the nodes found out about each other is judged") {
    DoctorFacts facts;
    facts.looks["nodes"] =
        look_of({"nodes expected=5 came=4 rounds=3", "node rank=0 host=n0 verdict=passed why=",
                 "node rank=1 host=n1 verdict=bad why=no~connection", "node rank=2 host=n2 verdict=undecided why=slow",
                 "node rank=3 host=n3 verdict=passed why=", "path a=0 b=3 why=small~messages~pass",
                 "pair a=0 b=3 passed=0 why=x", "pair a=0 b=2 passed=1 latency-us=50 mbytes-per-s=900",
                 "pair a=2 b=3 passed=1 latency-us=70 mbytes-per-s=800"});
    const auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 5);
    CHECK(findings[0].check == "node-links");
    CHECK(findings[0].what == "n1 (rank 1)");
    CHECK(findings[0].measured == "no connection");
    CHECK(findings[1].check == "node-undecided");
    CHECK(findings[2].check == "nodes-missing");
    CHECK(findings[2].measured == "4");
    CHECK(findings[3].what == "the path between n0 (rank 0) and n3 (rank 3)");
    CHECK(findings[4].measured == "800 to 900 MB/s, 50 to 70 us");
    facts.looks["nodes"].records.back().fields["sees-losses"] = "0";
    CHECK(examine(facts, {}, {})[4].measured ==
          "800 to 900 MB/s, 50 to 70 us; lost packets: could not look, the kernel does not tell them");
    CHECK(hosts_of(facts.look("nodes"), true) == "n0\nn3\n");
    CHECK(hosts_of(facts.look("nodes"), false) == "n1\nn2\n");
    facts.looks["nodes"].records[1].fields["host"] = "<n0>";
    const auto picture = links_svg(facts.look("nodes"));
    CHECK(picture.starts_with("<svg "));
    CHECK(picture.find("&lt;n0&gt;") != std::string::npos);
    CHECK(picture.find("900 MB/s, 50 us") != std::string::npos);
}

TEST_CASE("a limit of the site names links that are slow everywhere") {
    DoctorFacts facts;
    facts.looks["nodes"] =
        look_of({"nodes expected=3 came=3 rounds=2", "node rank=0 host=n0 verdict=passed why=",
                 "node rank=1 host=n1 verdict=passed why=", "pair a=0 b=1 passed=1 latency-us=50 mbytes-per-s=90",
                 "pair a=0 b=1 passed=1 latency-us=50 mbytes-per-s=110", "pair a=1 b=2 passed=0 why=no~connection",
                 "pair a=0 b=2 passed=1 latency-us=70 mbytes-per-s=120"});
    CHECK(examine(facts, {}, {}).front().level == Level::info);
    DoctorLimits limits;
    limits.set("link-mbytes", 110);
    CHECK(examine(facts, limits, {}).front().level == Level::info);
    limits.set("link-mbytes", 1000);
    const auto findings = examine(facts, limits, {});
    REQUIRE(findings.size() == 2);
    CHECK(findings[0].check == "links");
    CHECK(findings[0].level == Level::warning);
    CHECK(findings[0].what == "the link between n0 (rank 0) and n1 (rank 1)");
    CHECK(findings[0].measured == "110 MB/s; 2 of 2 tested links have less");
    CHECK(findings[0].expected == "at least 1000 MB/s");
}

TEST_CASE("a cut between groups of nodes is one finding, and names no single node") {
    DoctorFacts facts;
    facts.looks["nodes"] = look_of(
        {"nodes expected=4 came=4 rounds=3", "node rank=0 host=n0 verdict=passed group=0 why=",
         "node rank=1 host=n1 verdict=apart group=1 why=other~trouble",
         "node rank=2 host=n2 verdict=passed group=0 why=",
         "node rank=3 host=n3 verdict=apart group=1 why=other~trouble", "pair a=0 b=2 round=1 passed=0 why=one~path",
         "pair a=0 b=3 round=1 passed=0 why=slow:~9~MB/s~where~900~MB/s~are~usual",
         "pair a=1 b=2 round=2 passed=0 why=no~connection"});
    const auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].check == "nodes-apart");
    CHECK(findings[0].level == Level::critical);
    CHECK(findings[0].what == "nodes n0, n2; nodes n1, n3");
    CHECK(findings[0].measured == "do not reach each other: no connection");
    CHECK(hosts_of(facts.look("nodes"), true) == "n0\nn2\n");
    CHECK(hosts_of(facts.look("nodes"), false) == "n1\nn3\n");
    // A narrow link between racks is not called a cut, and the many groups of a broken network are not all listed.
    auto& records = facts.looks["nodes"].records;
    std::erase_if(records, [](const auto& one) { return one.text("a") == "1"; });
    CHECK(examine(facts, {}, {})[0].measured == "reach each other only slowly: slow: 9 MB/s where 900 MB/s are usual");
    for (int i = 4; i < 14; ++i)
        records.push_back(fact(cat("node rank=", i, " host=n", i, " verdict=apart group=", i)));
    CHECK(examine(facts, {}, {})[0].what.ends_with("; nodes n9; and 4 more groups"));
}

TEST_CASE("a fault that only a group of nodes shows is a warning; that many are slower than pairs is information") {
    DoctorFacts facts;
    facts.looks["nodes"] =
        look_of({"nodes expected=4 came=4 rounds=2", "node rank=0 host=n0 verdict=passed group=0 why=",
                 "node rank=1 host=n1 verdict=passed group=0 why=", "together ranks=1 of=4 why=no~connection",
                 "together ranks=0-1-2 of=4 why=slow:~9~MB/s~where~90~MB/s~are~usual"});
    const auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 2);
    CHECK(findings[0].check == "nodes-together");
    CHECK(findings[0].level == Level::warning);
    CHECK(findings[0].what == "n1 (rank 1)");
    CHECK(findings[0].measured == "in a group of 4 nodes: no connection");
    CHECK(findings[1].level == Level::info);
    CHECK(findings[1].what == "n0 (rank 0), n1 (rank 1), rank 2");
    CHECK(hosts_of(facts.look("nodes"), true) == "n0\n");  // a job with n1 would hang
    CHECK(hosts_of(facts.look("nodes"), false) == "n1\n");
    // A search that ended early says nothing.
    facts.looks["nodes"].records.back() = fact("untested why=the~store~is~lost");
    CHECK(examine(facts, {}, {})[0].level == Level::unknown);
    CHECK(examine(facts, {}, {})[0].measured == "the store is lost");
}

TEST_CASE("an address that leads nowhere is named with its network; a network that no two nodes use is information") {
    DoctorFacts facts;
    facts.looks["nodes"] = look_of(
        {"nodes expected=3 came=3 rounds=2", "node rank=0 host=n0 verdict=passed group=0 why=",
         "node rank=1 host=n1 verdict=passed group=0 why=", "network name=10.2.0.0/24 ranks=1 why=no~connection",
         "network name=10.3.0.0/24 ranks=0-1 why=small~messages~pass",
         "network name=10.4.0.0/24 ranks= why=no~connection:~refused",
         "network name=10.6.0.0/24 ranks= why=small~messages~pass",
         "untested-networks first=10.5.0.0/24 count=3 why=only~8~are~tested"});
    const auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 5);
    CHECK(findings[0].level == Level::unknown);
    CHECK(findings[0].what == "3 networks from 10.5.0.0/24 on");
    CHECK(findings[1].check == "node-network");
    CHECK(findings[1].level == Level::warning);
    CHECK(findings[1].what == "n1 (rank 1) in network 10.2.0.0/24");
    CHECK(findings[1].measured == "no connection");
    CHECK(findings[2].what == "n0 (rank 0), n1 (rank 1) in network 10.3.0.0/24");
    CHECK(findings[3].what == "10.6.0.0/24");
    CHECK(findings[3].level == Level::warning);
    CHECK(findings[4].what == "10.4.0.0/24");
    CHECK(findings[4].level == Level::info);
}

TEST_CASE("a node with another build of muster is named as not looked at, and not as bad") {
    DoctorFacts facts;
    facts.looks["nodes"] =
        look_of({"nodes expected=2 came=2 rounds=1", "node rank=0 host=n0 verdict=passed group=0 why=",
                 "node rank=1 host=n1 verdict=unread group=0 why=another~form"});
    const auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].level == Level::unknown);
    CHECK(finding_line(findings[0]).starts_with("could not look: node-build: n1 (rank 1): another form"));
}

TEST_CASE("nodes whose MTU in a network differs from that of most are named, and all where none is that of most") {
    DoctorFacts facts;
    facts.looks["nodes"] =
        look_of({"nodes expected=4 came=4 rounds=1", "node rank=0 host=n0 verdict=passed why=",
                 "node rank=1 host=n1 verdict=passed why=", "node rank=2 host=n2 verdict=passed why=",
                 "node rank=3 host=n3 verdict=passed why=", "mtu network=10.1.0.0/24 mtu=1500 ranks=1",
                 "mtu network=10.1.0.0/24 mtu=9000 ranks=0-2"});
    auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].check == "node-mtu");
    CHECK(findings[0].level == Level::warning);
    CHECK(findings[0].what == "n1 (rank 1) in network 10.1.0.0/24");
    CHECK(findings[0].measured == "MTU 1500");
    CHECK(findings[0].expected == "9000, as 2 of 3 nodes have there");
    facts.looks["nodes"].records[5].fields["ranks"] = "1-3";
    findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 2);
    CHECK(findings[0].what == "n1 (rank 1), n3 (rank 3) in network 10.1.0.0/24");
    CHECK(findings[1].what == "n0 (rank 0), n2 (rank 2) in network 10.1.0.0/24");
    CHECK(findings[1].expected == "the same on all");
}

TEST_CASE("a node whose clock is wrong is named") {
    DoctorFacts facts;
    facts.looks["nodes"] =
        look_of({"nodes expected=2 came=2 rounds=1", "node rank=0 host=n0 verdict=passed why=",
                 "node rank=1 host=n1 verdict=passed why=", "clock rank=1 ahead-ms=-3600000 within-ms=1000"});
    const auto findings = examine(facts, {}, {});
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].check == "node-clock");
    CHECK(findings[0].what == "n1 (rank 1)");
    CHECK(findings[0].measured == "60 min behind");
    CHECK(findings[0].expected == "within 1 s of the other nodes");
    facts.looks["nodes"].records.back() = fact("clock ranks=0-1 ahead-ms=3600000 within-ms=20000");
    CHECK(examine(facts, {}, {})[0].expected.starts_with("within 20 s of each other"));
    CHECK(examine(facts, {}, {})[0].what == "n0 (rank 0), n1 (rank 1)");
    CHECK(examine(facts, {}, {})[0].measured == "the clock of the second is 60 min ahead");
}
