// What is said to agents that do not want the same job.
#include "rendezvous/rounds/terms.h"

#include "rendezvous/rounds/server.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::rendezvous;

namespace {

std::string difference_of(void (*change)(native::JobTerms&)) {
    const native::JobTerms set{
        .nodes_min = 1, .nodes_max = 2, .last_call_ms = 30'000, .lease_ms = 5'000, .lost_timeout_ms = 60'000};
    auto given = set;
    change(given);
    return difference(set, "gpu01", given, "gpu02");
}

}  // namespace

TEST_CASE("terms that differ are shown as a person writes them, with both hosts and the option") {
    CHECK(difference_of([](auto&) {}).empty());
    CHECK(difference_of([](auto& terms) { terms.fixed_world = true; }) ==
          "the back end is c10d at gpu01 and static at gpu02; give the same --rdzv-backend on every node");
    CHECK(difference_of([](auto& terms) { terms.lost_timeout_ms = 90'500; }) ==
          "the lost time-out is 60 s at gpu01 and 90.5 s at gpu02; give the same --rdzv-lost-timeout on every node");
    CHECK(difference_of([](auto& terms) { terms.lease_ms = 100; }) ==
          "the lease is 5 s at gpu01 and 0.1 s at gpu02; give the same --lease on every node");
    CHECK(difference_of([](auto& terms) { terms.last_call_ms = 30'001; }) ==
          "the last call is 30 s at gpu01 and 30.001 s at gpu02; give the same --rdzv-conf last_call_timeout on every "
          "node");
    CHECK(difference_of([](auto& terms) { terms.restarts_max = 2; }) ==
          "the restart budget is 0 at gpu01 and 2 at gpu02; give the same --max-restarts on every node");
    CHECK(difference_of([](auto& terms) { terms.restarts_window_ms = 90'000; }) ==
          "the restart budget is 0 at gpu01 and 0/90s at gpu02; give the same --max-restarts on every node");
    CHECK(
        difference_of([](auto& terms) { terms.node_failures_max = 2, terms.node_failures_of = 5; }) ==
        "the limit of one node's failures is 0 at gpu01 and 2/5 at gpu02; give the same --node-failures on every node");
    CHECK(difference_of([](auto& terms) { terms.restart_early_failures = true; }) ==
          "the restart after an early failure is off at gpu01 and on at gpu02; give the same --restart-early-failures "
          "on every node");
    CHECK(difference_of([](auto& terms) { terms.store_door = true; }) ==
          "the door of the workers' store is off at gpu01 and on at gpu02; give the same --store-door and "
          "--wire-security on every node");
}

TEST_CASE("a job of more nodes than the daemon may have connections is refused at its first join") {
    const Instant now(1000s);
    ServerConfig config;
    config.connections_max = 3;
    const auto joined = [&](std::uint32_t nodes) {
        Server server(config, now);
        server.step(ConnectionAccepted{1, "10.0.0.1"}, now);
        native::Hello hello;
        hello.job = "job";
        hello.node = {"gpu01", 1, 1};
        server.step(Received{1, hello}, now);
        native::Join join;
        join.terms.nodes_min = nodes;
        join.terms.nodes_max = 100;
        std::string refusal;
        for (const auto& action : server.step(Received{1, join}, now).actions)
            if (const auto* sent = std::get_if<SendTo>(&action))
                if (const auto* refused = std::get_if<native::Refused>(&sent->message)) refusal = refused->why;
        return refusal;
    };
    CHECK(joined(3).empty());
    CHECK(joined(4) ==
          "a job of 4 nodes needs as many connections, and the limits of open files (RLIMIT_NOFILE, hard) and memory "
          "allow this daemon 3; on its host run `ulimit -n 68` or more as root in the shell that starts it, or write "
          "LimitNOFILE= into its unit");
}

TEST_CASE("budgets that make no sense are refused, whoever sends them") {
    native::Join join;
    CHECK(wrong_with(join, 10).empty());
    join.terms.node_failures_max = 3;
    join.terms.node_failures_of = 2;
    CHECK(wrong_with(join, 10) == "--node-failures 3/2 must be M/N with 0 < M <= N <= 100");
    join = {};
    join.terms.restarts_max = 1;
    join.terms.restarts_window_ms = 4'000'000'000;
    CHECK(wrong_with(join, 10) == "--max-restarts 1/4000000s: the window is at most 30d");
}
