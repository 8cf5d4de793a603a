#include "agent/core/hang_watch.h"

#include <algorithm>

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

/// Four workers under a virtual clock; each look is a second after the last.
struct Node {
    explicit Node(HangConfig config = {}) : watch(config) {
        watch.begin_round();
        for (std::uint32_t i = 0; i < 4; ++i) {
            WorkerLook look;
            look.local_rank = i;
            look.rank = static_cast<std::int32_t>(i) + 4;
            look.pid = 100 + static_cast<std::int32_t>(i);
            look.state = 'S';
            looks.push_back(look);
        }
    }

    /// Every worker does a step and computes for half a second.
    void train() {
        for (auto& look : looks) {
            look.cpu += 500ms;
            ++steps;
            look.operation = OperationLook{steps, false, "all_reduce 40 of world", 100ms, 0.3};
        }
    }
    void learn() {
        for (int i = 0; i < 10; ++i) {
            train();
            second();
        }
    }
    /// All but `one` wait in the next operation for it.
    void wait_for(std::size_t one) {
        for (std::size_t i = 0; i < looks.size(); ++i)
            if (i != one) looks[i].operation = OperationLook{steps + 1, true, "all_reduce 41 of world", 100ms, 0.3};
    }
    void second() {
        now += 1s;
        auto step = watch.look(looks, now);
        for (auto& line : step.notices) notices.push_back(line);
        for (auto& order : step.ends) ends.push_back(order);
    }
    /// How often a worker was told of that others wait for.
    [[nodiscard]] std::ptrdiff_t missing() const {
        return std::count_if(notices.begin(), notices.end(), [](const std::string& line) {
            return line.find("; it is missing from ") != std::string::npos;
        });
    }
    void seconds(int count) {
        for (int i = 0; i < count; ++i) second();
    }

    HangWatch watch;
    std::vector<WorkerLook> looks;
    Instant now{1000s};
    std::uint64_t steps = 0;
    std::vector<std::string> notices;
    std::vector<EndOrder> ends;
};

}  // namespace

TEST_CASE("a worker that is stopped for ten seconds is told of once, and that it goes on") {
    Node node({.deadline_min = 0s});
    node.looks[1].state = 'T';
    node.seconds(11);  // it counts from the second look: at the first one it was new
    CHECK(node.notices.empty());
    node.second();
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0] == "rank 5 (pid 101) has been stopped by a signal for 10 s");
    node.seconds(30);
    CHECK(node.notices.size() == 1);
    node.looks[1].state = 'S';
    node.second();
    CHECK(node.notices.back() == "rank 5 (pid 101) goes on");
    CHECK(node.ends.empty());
}

TEST_CASE("uninterruptible sleep is told with where, and not where bytes still move") {
    Node node;
    node.looks[0].state = node.looks[1].state = 'D';
    node.looks[0].where = "nfs_wait_bit_killable";
    for (int i = 0; i < 15; ++i) {
        node.looks[1].io_bytes += 1 << 20;  // a slow disk, and yet a disk
        node.second();
    }
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0] == "rank 4 (pid 100) has been in uninterruptible sleep in nfs_wait_bit_killable for 10 s");
}

TEST_CASE("a node whose workers all do nothing for two minutes is told of, with each one's place") {
    Node node;
    node.seconds(100);
    node.looks[3].cpu += 100ms;
    node.seconds(100);
    CHECK(node.notices.empty());
    node.seconds(30);
    REQUIRE(node.notices.size() == 5);
    CHECK(node.notices[0].starts_with("no worker of this node has used the CPU, read or written for "));
    CHECK(node.notices[4] == "  rank 7 (pid 103): asleep");
    node.looks[0].io_bytes += 1000;
    node.second();
    CHECK(node.notices.back() == "the workers of this node go on");
    CHECK(node.ends.empty());
}

TEST_CASE(
    "a worker that others wait for and that does nothing is told of after the deadline, with what it is missing from") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(9);
    CHECK(node.missing() == 0);
    node.seconds(1);
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0] ==
          "rank 6 (pid 102) has done nothing for 10 s (asleep, after all_reduce 40 of world); it is missing from "
          "all_reduce 41 of world, in which rank 4 (pid 100) waits");
    node.seconds(60);
    CHECK(node.missing() == 1);  // once
    CHECK(node.ends.empty());    // a GPU or a server may be at work for it
}

TEST_CASE("a stopped worker is ended although nobody waits on this node, also inside an operation") {
    Node node;
    node.learn();
    for (auto& look : node.looks) look.operation->inside = true;
    node.second();
    node.looks[1].state = 'T';
    node.seconds(12);
    REQUIRE(node.ends.size() == 1);
    CHECK(node.ends[0].local_rank == 1);
    CHECK(node.ends[0].why.find("stopped by a signal, inside all_reduce 40 of world") != std::string::npos);
}

TEST_CASE("slow is not hung: whoever computes, reads, is in a section, is debugged or starts up is waited for") {
    const auto waits = [](auto slow) {
        Node node;
        node.learn();
        node.wait_for(2);
        for (int i = 0; i < 600; ++i) {
            slow(node.looks[2]);
            node.second();
        }
        return node.missing() == 0 && node.ends.empty();
    };
    CHECK(waits([](WorkerLook& look) { look.cpu += 30ms; }));
    CHECK(waits([](WorkerLook& look) { look.io_bytes += 4096; }));
    CHECK(waits([](WorkerLook& look) { look.section = "checkpoint"; }));
    CHECK(waits([](WorkerLook& look) { look.state = 't'; }));
    CHECK(waits([](WorkerLook& look) { look.operation.reset(); }));
    CHECK_FALSE(waits([](WorkerLook& look) { look.cpu += 1ms; }));  // a runtime's own threads
    Node starting;
    starting.train();
    starting.second();
    starting.wait_for(2);
    starting.seconds(600);
    CHECK(starting.missing() == 0);
}

TEST_CASE("those who wait are not ended, however long, and nobody is where everybody waits for another node") {
    Node node;
    node.learn();
    node.wait_for(4);
    node.seconds(1000);
    CHECK(node.missing() == 0);
}

TEST_CASE("the deadline grows with the pauses that were seen") {
    Node node;
    for (auto& look : node.looks) look.operation = OperationLook{1, false, "x", 0ms, 0};
    node.learn();
    node.looks[2].operation->longest_gap = 20s;
    node.second();
    node.looks[2].operation->longest_gap = 100ms;  // the record is short, and yet it is remembered
    node.wait_for(2);
    node.seconds(58);
    CHECK(node.missing() == 0);
    node.seconds(3);
    CHECK(node.missing() == 1);
}

TEST_CASE("a paused machine, a new round and a new process begin anew; zero ends nobody") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(9);
    node.now += 3600s;
    node.seconds(9);
    CHECK(node.missing() == 0);
    node.looks[2].pid = 999;
    node.seconds(9);
    CHECK(node.missing() == 0);
    node.watch.begin_round();
    node.seconds(9);
    CHECK(node.missing() == 0);
    Node off({.deadline_min = 0s});
    off.learn();
    off.wait_for(2);
    off.seconds(1000);
    CHECK(off.missing() == 0);
}

TEST_CASE("a straggler is told with what it costs the others, now and then, and is never ended") {
    Node node;
    const auto train = [&](int seconds, double others, double slow) {
        for (int i = 0; i < seconds; ++i) {
            node.train();
            for (auto& look : node.looks) look.operation->inside_share = others;
            node.looks[2].operation->inside_share = slow;
            node.second();
        }
    };
    train(130, 0.3, 0.2);
    CHECK(node.notices.empty());
    train(200, 0.5, 0.1);
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0].starts_with("rank 6 (pid 102) is a straggler: the other ranks of this node wait for it "));
    train(700, 0.5, 0.1);
    REQUIRE(node.notices.size() == 2);
    CHECK(node.notices[1].ends_with(" wait for it 40 % of their time"));
    CHECK(node.ends.empty());
}
