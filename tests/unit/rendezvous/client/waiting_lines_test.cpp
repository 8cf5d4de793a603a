#include "rendezvous/client/core/waiting_lines.h"

#include "tests/support/catch.h"

namespace muster::rendezvous {
namespace {

struct Wait {
    explicit Wait(const char* host = "gpu00", std::string option = "--rdzv-endpoint")
        : lines({host, 29400}, "job7", false, std::move(option)) {
        lines.begin(now);
    }
    /// Everything that is said until then, the last line.
    std::string until(Duration since_begin) {
        std::string last;
        count = 0;
        while (lines.deadline() <= began + since_begin) {
            now = std::max(now, lines.deadline());
            if (auto line = lines.line(now, began + 600s)) {
                last = *line;
                ++count;
            }
        }
        now = began + since_begin;
        return last;
    }

    Instant began = Instant(1000s);
    Instant now = began;
    WaitingLines lines;
    int count = 0;
};

}  // namespace

TEST_CASE("a short wait says nothing") {
    Wait wait;
    wait.lines.answered(wait.now);
    CHECK(wait.until(999ms).empty());
}

TEST_CASE("a wait says who is missing, where, and how long still") {
    Wait wait;
    wait.lines.answered(wait.now);
    wait.lines.gathering({2, 3, 4, -1, "1 more node"}, wait.now);
    CHECK(wait.until(1s) == "2 of 3..4 nodes joined at gpu00:29400; waiting for 1 more node; timeout in 599 s");
    wait.lines.gathering({3, 3, 4, 30'000, "up to 1 more node, until the last call ends"}, wait.now);
    CHECK(wait.until(5s) ==
          "3 of 3..4 nodes joined at gpu00:29400; waiting for up to 1 more node, until the last call "
          "ends; last call ends in 29 s; timeout in 598 s");
}

TEST_CASE("after 10 s without a connection it says what to check, and then each 30 s") {
    Wait wait;
    CHECK(wait.until(9s) == "gpu00:29400 did not answer; timeout in 599 s");
    wait.lines.no_answer(WaitingLines::Reached::nothing, "10.0.0.1: connection refused", wait.now);
    const auto advice = wait.until(10s);
    CHECK(advice.find("did not answer (10.0.0.1: connection refused)") != std::string::npos);
    CHECK(advice.find("'gpu00'") != std::string::npos);
    CHECK(advice.find("port 29400") != std::string::npos);
    CHECK(advice.find("firewall") != std::string::npos);
    wait.until(100s);
    CHECK(wait.count == 3);
}

TEST_CASE("connections that lead to no muster bring no line each, and do not put the advice off") {
    Wait wait;
    int said = 0;
    std::string last;
    for (auto at = 0ms; at <= 10s; at += 500ms) {
        wait.lines.no_answer(WaitingLines::Reached::a_peer, "connected, but it does not speak muster's protocol",
                             wait.now);
        last = wait.until(at);
        said += wait.count;
    }
    CHECK(said == 2);
    CHECK(last.starts_with("gpu00:29400: connected, but it does not speak muster's protocol; timeout in 590 s. "));
    for (const char* part : {"'gpu00'", "port 29400", "firewall"}) CHECK(last.find(part) != std::string::npos);
}

TEST_CASE("a node that has the daemon and waits for others is told after 10 s what those need") {
    Wait wait;
    wait.lines.answered(wait.now);
    wait.lines.gathering({1, 2, 2, -1, "1 more node"}, wait.now);
    CHECK(wait.until(9s).find("firewall") == std::string::npos);
    const auto advice = wait.until(10s);
    for (const char* part : {"1 of 2 nodes joined", "--rdzv-id", "'gpu00'", "port 29400", "firewall"})
        CHECK(advice.find(part) != std::string::npos);
}

TEST_CASE("news put the advice off, and a last call needs none") {
    Wait wait;
    wait.lines.answered(wait.now);
    wait.lines.gathering({1, 3, 4, -1, "2 more nodes"}, wait.now);
    wait.until(9s);
    wait.lines.gathering({2, 3, 4, -1, "1 more node"}, wait.now);
    CHECK(wait.until(18s).find("firewall") == std::string::npos);
    CHECK(wait.until(19s).find("firewall") != std::string::npos);
    wait.lines.gathering({3, 3, 4, 30'000, "up to 1 more node, until the last call ends"}, wait.now);
    CHECK(wait.until(48s).find("firewall") == std::string::npos);
}

TEST_CASE("a loopback endpoint gets a hint after 10 s") {
    Wait wait("localhost");
    wait.lines.answered(wait.now);
    wait.lines.gathering({1, 2, 2, -1, "1 more node"}, wait.now);
    CHECK(wait.until(9s).find("loopback address") == std::string::npos);
    CHECK(wait.until(10s).find("--rdzv-endpoint=HOST:29400") != std::string::npos);
}

TEST_CASE("a static job is advised of its own options") {
    Wait wait("localhost", "--master-addr");
    wait.lines.answered(wait.now);
    wait.lines.gathering({1, 2, 2, -1, "1 more node"}, wait.now);
    const auto advice = wait.until(10s);
    CHECK(advice.find("set --master-addr=HOST --master-port=29400") != std::string::npos);
    CHECK(advice.find("its own --node-rank") != std::string::npos);
    CHECK(advice.find("--rdzv-endpoint") == std::string::npos);
}

TEST_CASE("a PyTorch store at the endpoint is named as soon as it is known, with what to do") {
    Wait wait;
    wait.lines.no_answer(WaitingLines::Reached::a_peer, "connected, but the connection ended", wait.now);
    wait.until(2s);
    wait.lines.no_answer(WaitingLines::Reached::store, "PyTorch's store answers there", wait.now);
    const auto line = wait.until(2s);
    CHECK(line.starts_with("gpu00:29400: PyTorch's store answers there; timeout in "));
    CHECK(line.find(". muster and torchrun cannot form one job: start all") != std::string::npos);
    wait.lines.no_answer(WaitingLines::Reached::store, "PyTorch's store answers there", wait.now);
    CHECK(wait.until(31s).empty());
}

TEST_CASE("a spare is told its place") {
    Wait wait;
    wait.lines.answered(wait.now);
    wait.lines.parked({2, ""}, wait.now);
    CHECK(wait.until(0s) ==
          "this node is a spare of job 'job7' at gpu00:29400 (2 before it) and starts its workers only when a node "
          "is lost");
    CHECK(wait.until(40s).find("Check") == std::string::npos);
}

}  // namespace muster::rendezvous
