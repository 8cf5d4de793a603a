// Nodes of a running round that come back to their daemon one after another: what they are told, and what it costs.
#include <chrono>

#include "rendezvous/base/text/text.h"
#include "rendezvous/rounds/server.h"
#include "tests/support/catch.h"
#include "tests/transcripts/story.h"

namespace muster::test {

namespace {

/// Of the lines, the one that tells `node` its peers.
std::string peers_of(const std::string& lines, int node) {
    const auto begin = lines.find(cat("n", node, " <- Peers"));
    return begin == std::string::npos ? std::string() : lines.substr(begin, lines.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a node that comes back is told the same place in the tree as all were when the last one left") {
    constexpr int count = 40;
    for (const int step : {2, 3, 7, 39}) {
        Story story(cat("min=", count, " max=", count, " lease=5s kept fan_out=", step % 3 + 1));
        for (int i = 0; i < count; ++i) story.answers(cat("join n", i));
        std::string told;
        for (int i = step - 1; i < count; i += step) told = story.answers(cat("succeed n", i, "\nleave n", i));
        story.answers("restart");
        for (int i = 0; i < count; ++i) {
            if ((i + 1) % step == 0) continue;
            INFO(step << ", n" << i);
            CHECK_FALSE(peers_of(told, i).empty());
            CHECK(peers_of(story.answers(cat("resume n", i)), i) == peers_of(told, i));
        }
    }
}

TEST_CASE(
    "a daemon that stood still after its start has a lease from then on to hear of rounds that it does not know") {
    Story story("min=1 max=1 lease=5s quiet_always");
    story.answers("join n0\nadvance 6s\nrestart\nadvance 1s\nstall 6s");
    CHECK(story.answers("join n1").find("Assigned") == std::string::npos);
    CHECK(story.answers("resume n0").find("round 0 continues") != std::string::npos);
    CHECK(story.answers("advance 6s").find("Parked") != std::string::npos);
}

TEST_CASE("a suspension of the daemon is told once, and leases restart with each word that it reads afterwards") {
    using namespace rendezvous;
    auto now = Instant(1000s);
    Server server({}, now);
    for (ConnectionId agent = 1; agent <= 2; ++agent) {
        native::Hello hello;
        hello.job = "job";
        hello.node = {"n", 1, agent};
        native::Join join;
        join.terms = {.nodes_min = 2, .nodes_max = 2};
        server.step(ConnectionAccepted{agent, "10.0.0.1"}, now);
        server.step(Received{agent, hello}, now);
        server.step(Received{agent, join}, now);
    }
    std::size_t told = 0;
    const auto step = [&](const ServerEvent& event) {
        for (const auto& why : server.step(event, now).why) {
            if (why.kind == EventKind::daemon_stalled) ++told;
            CHECK(why.kind != EventKind::node_lost);
        }
    };
    now += 60s;
    for (ConnectionId other = 3; other < 23; ++other, now += 1s) step(ConnectionAccepted{other, "10.0.0.1"});
    step(Received{1, native::Ping{}});
    step(Elapsed{});
    CHECK(told == 1);
}

namespace {

/// A round of `count` nodes.
struct LargeJob {
    explicit LargeJob(std::uint32_t nodes) : count(nodes), server({}, now) {
        for (std::uint32_t i = 0; i < count; ++i) {
            connect(i, 1);
            server.step(rendezvous::Received{i + 1, join(i)}, now);
        }
    }
    void last_one_leaves() {
        server.step(rendezvous::Received{count, native::WorkersSucceeded{0}}, now);
        server.step(rendezvous::Received{count, native::Leave{"done"}}, now);
    }
    /// One that never saw its Assigned.
    rendezvous::ServerStep join_again(std::uint32_t node) {
        connect(node, 2);
        return server.step(rendezvous::Received{node + 1 + count, join(node)}, now);
    }
    void connect(std::uint32_t node, std::uint32_t number) {
        const auto connection = node + 1 + (number - 1) * count;
        server.step(rendezvous::ConnectionAccepted{connection, "10.0.0.1"}, now);
        native::Hello hello;
        hello.job = "job";
        hello.node = {cat("n", node), 1, node + 1};
        hello.connection = number;
        server.step(rendezvous::Received{connection, hello}, now);
    }
    [[nodiscard]] native::Join join(std::uint32_t node) const {
        native::Join join;
        join.terms = {.nodes_min = count, .nodes_max = count, .lease_ms = 60'000, .lost_timeout_ms = 120'000};
        join.addresses = {cat("10.0.", node / 250, '.', node % 250)};
        return join;
    }
    rendezvous::ServerStep resume(std::uint32_t node) {
        connect(node, 2);
        native::Assigned assigned;
        assigned.round = 0;
        assigned.group_rank = node;
        assigned.group_world_size = count;
        return server.step(rendezvous::Received{node + 1 + count, native::Resume{0, false, join(node), assigned}}, now);
    }

    std::uint32_t count;
    Instant now = Instant(1000s);
    rendezvous::Server server;
};

}  // namespace

TEST_CASE("nodes that come back are told their places at a cost that does not grow with their number", "[.by_hand]") {
    for (const std::uint32_t count : {1'000U, 4'000U, 10'000U}) {
        LargeJob job(count);
        job.last_one_leaves();
        std::size_t told = 0;
        const auto begun = std::chrono::steady_clock::now();
        for (std::uint32_t i = 0; i + 1 < count; ++i)
            for (const auto& action : job.resume(i).actions) {
                const auto* send = std::get_if<rendezvous::SendTo>(&action);
                told += send != nullptr && std::holds_alternative<native::Peers>(send->message);
            }
        CHECK(told == count - 1);
        const auto took = std::chrono::steady_clock::now() - begun;
        WARN(count << " nodes: " << took / std::chrono::microseconds(count) << " us for each");
    }
}

TEST_CASE("a node that never saw its assignment is told the same again as all others are") {
    Story story("min=4 max=4 lease=5s");
    std::string sealed;
    for (const auto* words :
         {"n0 role=a slots=2 version=1.0", "n1 role=b slots=3 version=2.0", "n2 role=a slots=4", "n3 role=b"})
        sealed = story.answers(cat("join ", words));
    const auto told = [](const std::string& lines, int node) {
        const auto begin = lines.find(cat("n", node, " <- Assigned"));
        return begin == std::string::npos ? std::string() : lines.substr(begin, lines.find('\n', begin) - begin);
    };
    CHECK(says(told(sealed, 3), "versions of muster differ: 1.0 on n0; 2.0 on n1"));
    for (int i = 0; i < 4; ++i) {
        INFO("n" << i);
        CHECK(told(story.answers(cat("close n", i, "\nlose n", i, "\njoin n", i)), i) == told(sealed, i));
    }
}

TEST_CASE("nodes that never saw their assignment are told it without copies of the others'", "[.by_hand]") {
    for (const std::uint32_t count : {1'000U, 4'000U}) {
        LargeJob job(count);
        std::size_t told = 0;
        const auto begun = std::chrono::steady_clock::now();
        for (std::uint32_t i = 0; i < count; ++i)
            for (const auto& action : job.join_again(i).actions) {
                const auto* send = std::get_if<rendezvous::SendTo>(&action);
                told += send != nullptr && std::holds_alternative<native::Assigned>(send->message);
            }
        CHECK(told == count);
        const auto took = std::chrono::steady_clock::now() - begun;
        WARN(count << " nodes: " << took / std::chrono::microseconds(count) << " us for each");
    }
}

}  // namespace muster::test
