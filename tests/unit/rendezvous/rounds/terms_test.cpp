// What is said to agents that do not want the same job.
#include "rendezvous/rounds/terms.h"

#include <set>

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

native::Join job_of(std::uint32_t nodes) {
    native::Join join;
    join.terms.nodes_min = nodes;
    join.terms.nodes_max = 10'000;
    return join;
}

native::Join static_job_of(std::uint32_t nodes) {
    auto join = job_of(nodes);
    join.terms.nodes_max = nodes;
    join.terms.fixed_world = true;
    return join;
}

/// A daemon that may have only so many connections. Each node that joins is a new one.
struct NarrowDaemon {
    explicit NarrowDaemon(std::size_t connections) : server(config_of(connections), now) {}
    /// Returns its connection.
    ConnectionId greet(std::string job, Incarnation incarnation, std::string host = {}) {
        server.step(ConnectionAccepted{++last_connection, "10.0.0.1"}, now);
        native::Hello hello;
        hello.job = std::move(job);
        hello.node = {host.empty() ? cat("gpu0", incarnation) : std::move(host), 1, incarnation};
        server.step(Received{last_connection, hello}, now);
        return last_connection;
    }
    std::string refusal_of(std::string job, const native::Message& join, std::string host = {}) {
        const auto step = server.step(Received{greet(std::move(job), ++nodes, std::move(host)), join}, now);
        std::string refusal;
        for (const auto& event : step.why)
            if (event.kind == EventKind::node_refused) told += cat(event.text, '\n');
        for (const auto& action : step.actions) {
            if (const auto* sent = std::get_if<SendTo>(&action))
                if (const auto* refused = std::get_if<native::Refused>(&sent->message)) refusal = refused->why;
            if (const auto* done = std::get_if<CloseConnection>(&action)) closed.insert(done->connection);
        }
        return refusal;
    }
    [[nodiscard]] bool knows(std::string_view job) {
        return server.status_json(now).find(cat("\"", job, "\"")) != std::string::npos;
    }
    static ServerConfig config_of(std::size_t connections) {
        ServerConfig config;
        config.connections_max = connections;
        config.other_descriptors = 64;
        return config;
    }

    Instant now{1000s};
    Server server;
    ConnectionId last_connection = 0;
    Incarnation nodes = 0;
    std::set<ConnectionId> closed;
    std::string told;  ///< in the log and the events, of refusals
};

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

TEST_CASE("a node opens no job that needs more connections than the daemon may have") {
    NarrowDaemon daemon(3);
    CHECK(daemon.refusal_of("fits", job_of(3)).empty());
    CHECK(daemon.refusal_of("large", job_of(4)) ==
          "job 'large' needs 4 connections (4 nodes), but the daemon there may have 3 by its limits of open files "
          "(RLIMIT_NOFILE, hard) and memory; on its host run `ulimit -n 68` as root in the shell that starts it, or "
          "write LimitNOFILE=68 into its unit; where memory is the smaller limit, give it more");
    // The store of a static job's workers is at the daemon's port too.
    auto fixed = static_job_of(2);
    fixed.slots = 2;
    CHECK(NarrowDaemon(5).refusal_of("static", fixed).empty());  // The other node may have one worker.
    CHECK_THAT(
        NarrowDaemon(4).refusal_of("static", fixed),
        Catch::Contains("needs at least 5 connections (2 nodes and their workers, whose store is at its port), but"));
}

TEST_CASE("the log and the events of a daemon tell of jobs that need more connections, once a minute for all of them") {
    NarrowDaemon daemon(3);
    const auto why = daemon.refusal_of("large", job_of(4));
    const auto line = cat("refused from 10.0.0.1, job 'large': ", why, '\n');
    for (const auto* job : {"another", "large", "another"}) CHECK_FALSE(daemon.refusal_of(job, job_of(4)).empty());
    CHECK(daemon.told == line);
    daemon.now += 61s;
    daemon.refusal_of("large", job_of(4));
    CHECK(daemon.told ==
          cat(line, line.substr(0, line.size() - 1), "; 3 more were refused for a limit since the last such line\n"));
    daemon.now += 61s;
    daemon.refusal_of("large", job_of(4));
    CHECK(daemon.told.ends_with(cat("line\n", line)));
}

TEST_CASE("nodes of a job that runs are not refused by a daemon that may have fewer connections than before") {
    NarrowDaemon daemon(3);
    auto back = job_of(4);
    back.last_round = 0;
    CHECK(daemon.refusal_of("runs", back).empty());
    CHECK(daemon.refusal_of("runs", job_of(4)).empty());  // in the place of another one
}

TEST_CASE("a daemon serves one static job at a time, because each seal of one empties the store of its workers") {
    NarrowDaemon daemon(1000);
    const auto fixed = static_job_of(2);
    CHECK(daemon.refusal_of("a", fixed).empty());
    const std::string why =
        "job 'b' has --rdzv-backend=static, and the daemon there has one store for the workers of such jobs, which "
        "another one uses; start job 'b' with --rdzv-backend=c10d, or with a --master-port of its own";
    CHECK(daemon.refusal_of("b", fixed) == why);
    CHECK(daemon.told == cat("refused from 10.0.0.1, job 'b': ", why, '\n'));
    CHECK(daemon.refusal_of("c10d", job_of(2)).empty());
    CHECK(daemon.refusal_of("a", fixed).empty());  // Its second node: the round is sealed.
    CHECK(daemon.refusal_of("b", fixed) == why);
    // Both agents die. Job a is remembered, and has no right to the store any more.
    for (const Incarnation agent : {1, 4})
        daemon.server.step(Received{daemon.greet("a", agent), native::AgentDied{"killed by signal 9"}}, daemon.now);
    CHECK_THAT(daemon.server.status_json(daemon.now), Catch::Contains("\"a\""));
    CHECK(daemon.refusal_of("b", fixed).empty());
    CHECK_THAT(daemon.refusal_of("a", fixed), Catch::Contains("job 'a' has --rdzv-backend=static"));
}

TEST_CASE("a static job that is over, or that the daemon is not embedded for, keeps no other one away") {
    NarrowDaemon daemon(1000);
    const auto alone = static_job_of(1);
    CHECK(daemon.refusal_of("a", alone).empty());
    CHECK_FALSE(daemon.refusal_of("b", alone).empty());
    daemon.server.step(Received{1, native::WorkersSucceeded{0}}, daemon.now);
    CHECK(daemon.refusal_of("b", alone).empty());
    auto config = NarrowDaemon::config_of(1000);
    config.embedded_for = "b";
    CHECK(store_user("b", false, config, {}) == nullptr);
}

TEST_CASE("a static job that comes back to a daemon that was started again goes before one that only waits") {
    const auto two = static_job_of(2);
    auto joins_again = two;
    joins_again.last_round = 0;
    native::Resume resumes;
    resumes.round = resumes.as_assigned.round = 0;
    resumes.as_joined = two;
    resumes.as_assigned.group_world_size = 2;
    for (const auto& back : {native::Message(joins_again), native::Message(resumes)}) {
        NarrowDaemon daemon(1000);
        CHECK(daemon.refusal_of("b", two).empty());
        CHECK(daemon.refusal_of("a", back).empty());
        CHECK(daemon.closed.contains(1));  // It joins again.
        CHECK_FALSE(daemon.refusal_of("b", two).empty());
        CHECK(daemon.refusal_of("a", back).empty());
        // Where a round of the other one runs, its workers use the store already.
        NarrowDaemon later(1000);
        for (int node = 0; node < 2; ++node) CHECK(later.refusal_of("b", two).empty());
        CHECK_THAT(later.refusal_of("a", back), Catch::Contains("job 'a' has --rdzv-backend=static"));
        CHECK_FALSE(later.knows("a"));
    }
    // One node's word that nobody has confirmed keeps no other job away.
    NarrowDaemon unsure(1000);
    CHECK(unsure.refusal_of("b", resumes).empty());
    CHECK(unsure.refusal_of("a", resumes).empty());
    CHECK(unsure.knows("b"));
}

TEST_CASE("a static job that is over tells its nodes so while another one uses the store") {
    NarrowDaemon daemon(1000);
    auto one = static_job_of(1);
    CHECK(daemon.refusal_of("a", one).empty());
    daemon.server.step(Received{1, native::WorkersSucceeded{0}}, daemon.now);
    CHECK(daemon.refusal_of("b", one).empty());
    one.last_round = 0;
    CHECK(daemon.refusal_of("a", one).empty());
    CHECK(daemon.knows("b"));
}

TEST_CASE("the next run of a static job keeps another one away before it begins") {
    const auto alone = static_job_of(1), two = static_job_of(2);
    NarrowDaemon lingering(1000);
    for (int node = 0; node < 2; ++node) CHECK(lingering.refusal_of("a", two).empty());
    for (const ConnectionId node : {1, 2})
        lingering.server.step(Received{node, native::WorkersSucceeded{0}}, lingering.now);
    lingering.server.step(Received{1, native::Leave{"done"}}, lingering.now);
    CHECK(lingering.refusal_of("a", two, "gpu01").empty());  // It waits until the other node has heard the end.
    CHECK_FALSE(lingering.refusal_of("b", alone).empty());
}

TEST_CASE("a node whose terms are another job's hears of these, and not of the daemon's connections") {
    NarrowDaemon daemon(3);
    CHECK(daemon.refusal_of("job", job_of(3)).empty());
    CHECK_THAT(daemon.refusal_of("job", job_of(6000)), Catch::Contains("--nnodes on every node"));
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
