#include <string>

#include "tests/support/catch.h"
#include "tests/unit/agent/doctor/clean_node.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

std::vector<Finding> of(std::string_view rules) {
    auto facts = clean_node();
    facts.looks["firewall"] = firewall_of(rules);
    auto findings = examine(facts, {}, {});
    std::erase_if(findings, [](const Finding& one) { return one.check != "firewall"; });
    return findings;
}

/// A chain of input with this policy and these rules.
std::string input(std::string_view policy, std::string_view rules, std::string_view more = "") {
    return cat("table inet filter {\n set known {\n type ipv4_addr\n elements = { 10.0.0.1,\n 10.0.0.2 }\n }\n",
               " chain input {\n type filter hook input priority filter; policy ", policy, ";\n", rules, " }\n", more,
               "}\n");
}

constexpr std::string_view usual =
    "ct state vmap { invalid : drop, established : accept, related : accept }\n"
    "iifname \"lo\" accept\n meta l4proto { icmp, ipv6-icmp } accept\n udp dport 68 accept\n tcp dport 22 counter "
    "accept\n";

}  // namespace

TEST_CASE("a chain that drops what it does not accept, and accepts no peer, is named") {
    for (const auto& rules :
         {input("drop", ""), input("drop", usual), input("accept", cat(usual, "reject with icmpx admin-prohibited\n")),
          input("accept", cat(usual, "counter drop\n")), input("drop", cat(usual, "tcp dport 8000-9000 accept\n")),
          input("drop", "jump more\n", " chain more {\n tcp dport { 22, 80 } accept\n goto input\n }\n"),
          // What leaves the chain meets the policy, and what leaves another one goes on behind the jump.
          input("drop", "ip saddr 10.0.0.0/8 return\n ip saddr 10.1.0.0/16 goto more\n",
                " chain more {\n tcp dport 22 accept\n return\n }\n"),
          input("accept", "jump more\n drop\n", " chain more {\n ip saddr 10.0.0.0/8 return\n }\n"),
          // Words in comments mean nothing.
          input("drop", "tcp dport 22 accept comment \"we accept ! peers\"\n"),
          input("drop", "log prefix \"accept new\" comment \"return\"\n")}) {
        const auto found = of(rules);
        INFO(rules);
        REQUIRE(found.size() == 1);
        CHECK(found[0].level == Level::warning);
        CHECK(found[0].what == "the firewall's chain inet filter input");
        CHECK(found[0].measured == "accepts no new connection on the ports of ranks, 32768 to 60999");
        CHECK(found[0].mend.starts_with("nft insert rule inet filter input ip saddr NETWORK accept"));
    }
}

TEST_CASE("a chain that may accept a peer is not named") {
    for (const auto* rule :
         {"accept\n", "ip saddr 10.0.0.0/8 accept\n", "ip saddr @known counter accept\n", "iif \"eth0\" accept\n",
          "iif != \"lo\" accept\n", "tcp dport 1024-65535 accept\n", "tcp dport { 22, 40000 } accept\n",
          "tcp dport != 22 accept\n", "tcp dport @ports accept\n", "ct state established,related,new accept\n",
          "meta l4proto { tcp, udp } accept\n", "xt match something accept\n", "ip saddr vmap @verdicts\n",
          "queue num 0\n",
          // Words in comments and in names of sets mean nothing.
          "ip saddr 10.0.0.0/8 accept comment \"open already: established\"\n",
          "ip saddr 10.0.0.0/8 accept comment \"icmp and udp on iif lo\"\n", "ip saddr @udp accept\n",
          "ip saddr @icmp_hosts accept\n", "iifname \"established0\" accept\n",
          // A protocol by number may be TCP, and what has no state may be a peer's.
          "meta l4proto { udp, 6 } accept\n", "ct state established,untracked accept\n",
          "limit rate 10/second burst 5 packets accept\n", "ct state vmap { established : accept, new : jump x }\n"}) {
        INFO(rule);
        CHECK(of(input("drop", cat(usual, rule))).empty());
    }
    CHECK(of(input("drop", "jump more\n", " chain more {\n goto last\n }\n chain last {\n accept\n }\n")).empty());
    CHECK(of(input("accept", usual)).empty());
    // What leaves the chain before it drops everything is accepted by the policy.
    CHECK(of(input("accept", "ip saddr 10.0.0.0/8 return\n drop\n")).empty());
    CHECK(of(input("accept", "iifname \"eth0\" goto more\n drop\n", " chain more {\n tcp dport 22 accept\n }\n"))
              .empty());
    // The end of one interface is not the end of all.
    CHECK(of(input("accept", cat(usual, "iifname \"eth1\" drop\n"))).empty());
    // A table that is switched off, and one whose first line has a remark.
    CHECK(
        of("table inet old {\n flags dormant\n chain input {\n type filter hook input priority filter; policy drop;\n "
           "}\n}\n")
            .empty());
    CHECK(of("table inet own {\n chain input {\n type filter hook input priority filter; policy accept;\n }\n}\n"
             "table bridge other { # progname firewalld\n chain input {\n type filter hook input priority filter; "
             "policy drop;\n }\n}\n")
              .empty());
    // Not for what comes in for this host.
    CHECK(of("table ip filter {\n chain FORWARD {\n type filter hook forward priority filter; policy drop;\n }\n}\n")
              .empty());
    CHECK(of("table ip6 filter {\n chain INPUT {\n type filter hook input priority filter; policy drop;\n }\n}\n")
              .empty());
    CHECK(of("").empty());
}

TEST_CASE("the rules of iptables are understood, too") {
    constexpr std::string_view begin =
        "-P INPUT DROP\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n-N sites\n-A INPUT -i lo -j ACCEPT\n"
        "-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n-A INPUT -j sites\n"
        "-A sites -p tcp -m tcp --dport 22 -j ACCEPT\n-A sites -p tcp -m multiport --dports 80,8000:9000 -j ACCEPT\n";
    const auto found = of(begin);
    REQUIRE(found.size() == 1);
    CHECK(found[0].what == "the firewall's chain ip filter INPUT");
    CHECK(found[0].mend.starts_with("iptables -I INPUT -s NETWORK -j ACCEPT"));
    CHECK(of(cat(begin, "-A sites -s 10.0.0.0/24 -j ACCEPT\n")).empty());
    CHECK(of(cat(begin, "-A sites -p tcp -m multiport --dports 80,30000:65535 -j ACCEPT\n")).empty());
    CHECK(of(cat(begin, "-A sites -s 10.0.0.0/24 -m comment --comment \"state \\\"ESTABLISHED\\\"\" -j ACCEPT\n"))
              .empty());
    CHECK(of(cat(begin, "-A sites -m comment --comment ACCEPT -j RETURN\n-A INPUT -m limit --limit 3/min -j LOG\n"))
              .size() == 1);
    CHECK(of("-P INPUT ACCEPT\n-A INPUT -s 10.0.0.0/24 -j RETURN\n-A INPUT -j DROP\n").empty());
    CHECK(of(cat("-P INPUT ACCEPT\n",
                 "-A INPUT -i lo -j ACCEPT\n-A INPUT -j REJECT --reject-with icmp-port-unreachable\n"))
              .size() == 1);
}

TEST_CASE("a rule that is not understood is information") {
    for (const auto* rule : {"meta l4proto tcp # xt_multiport\n", "xt target \"CLUSTERIP\"\n", "jump elsewhere\n",
                             "meta mark set 0x1\n"}) {
        const auto found = of(input("drop", cat(usual, rule)));
        INFO(rule);
        REQUIRE(found.size() == 1);
        CHECK(found[0].level == Level::info);
        CHECK(found[0].measured ==
              cat("could not look: a rule of the chain inet filter input is not understood: ", trim(rule)));
    }
    const auto found = of("-P INPUT DROP\n-A INPUT -m set --match-set log src -j SYNPROXY\n");
    REQUIRE(found.size() == 1);
    CHECK(found[0].level == Level::info);
}

TEST_CASE("rules that cannot be read are information; the range of the ports is this node's") {
    const auto found = of("unreadable\ttext=Operation not permitted (you must be root)\n");
    REQUIRE(found.size() == 1);
    CHECK(found[0].level == Level::info);
    CHECK(found[0].measured == "could not look: Operation not permitted (you must be root)");
    auto facts = clean_node();
    facts.looks["network"] = look_of({"ports first=20000 last=25000 reserved="});
    facts.looks["firewall"] = firewall_of(input("drop", "tcp dport 30000-60000 accept\n"));
    const auto here = examine(facts, {}, {});
    CHECK(std::ranges::count(here, "firewall", &Finding::check) == 1);
}
