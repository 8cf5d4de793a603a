#include "agent/diagnosis/hang_watch.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/agent/diagnosis/watched_node.h"

using namespace muster;
using namespace muster::agent;
using Node = muster::agent::test::WatchedNode;

TEST_CASE("a worker that is stopped for ten seconds is told of once, and that it goes on") {
    Node node({.deadline_min = 0s});
    node.samples[1].state = 'T';
    node.seconds(11);  // it counts from the second look: at the first one it was new
    CHECK(node.notices.empty());
    node.second();
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0] == "rank 5 (pid 101) has been stopped by a signal for 10 s");
    node.seconds(30);
    CHECK(node.notices.size() == 1);
    node.samples[1].state = 'S';
    node.second();
    CHECK(node.notices.back() == "rank 5 (pid 101) goes on");
    CHECK(node.ends.empty());
}

TEST_CASE("uninterruptible sleep is told with where, and not where bytes still move") {
    Node node;
    node.samples[0].state = node.samples[1].state = 'D';
    node.samples[0].where = "nfs_wait_bit_killable";
    for (int i = 0; i < 15; ++i) {
        node.samples[1].io_bytes += 1 << 20;  // a slow disk, and yet a disk
        node.second();
    }
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0] == "rank 4 (pid 100) has been in uninterruptible sleep in nfs_wait_bit_killable for 10 s");
}

TEST_CASE("a worker that waits for a child is as active as the child is") {
    Node node;
    CHECK(node.watch.seems_idle(node.samples[0], node.now));
    node.samples[0].children_cpu = 0s;
    for (int i = 0; i < 200; ++i) {
        *node.samples[0].children_cpu += 100ms;
        CHECK(node.watch.seems_idle(node.samples[0], node.now + 1s));
        node.second();
    }
    CHECK(node.notices.empty());
    // The child has ended, and its time is the worker's.
    node.samples[0].cpu += *node.samples[0].children_cpu;
    CHECK_FALSE(node.watch.seems_idle(node.samples[0], node.now + 1s));
    node.samples[0].children_cpu.reset();
    node.seconds(120);
    CHECK(node.notices.empty());
    node.seconds(10);
    CHECK(node.notices.size() == 6);
}

TEST_CASE("a node whose workers all do nothing for two minutes is told of, with each one's place") {
    Node node;
    node.seconds(100);
    node.samples[3].cpu += 100ms;
    node.seconds(100);
    CHECK(node.notices.empty());
    node.seconds(30);
    REQUIRE(node.notices.size() == 6);
    CHECK(node.notices[5].find("they wait for each other or for something outside the job") != std::string::npos);
    CHECK(node.notices[5].find("stop the job with Ctrl-C or SIGTERM") != std::string::npos);
    CHECK(node.notices[0].starts_with("no worker of this node has used the CPU or done I/O for "));
    CHECK(node.notices[4] == "  rank 7 (pid 103): asleep");
    ++node.samples[0].step;
    node.second();
    CHECK(node.notices.back() == "the workers of this node make progress again");
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
    for (auto& sample : node.samples) sample.operation->inside = true;
    node.second();
    node.samples[1].state = 'T';
    node.seconds(12);
    REQUIRE(node.ends.size() == 1);
    CHECK(node.ends[0].local_rank == 1);
    CHECK(node.ends[0].why.find("stopped by a signal, inside all_reduce 40 of world") != std::string::npos);
}

TEST_CASE("a worker that was told of as missing and is stopped then is ended, and told of anew when it had moved") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(12);
    CHECK(node.missing() == 1);
    node.samples[2].state = 'T';
    node.seconds(9);
    CHECK(node.ends.empty());
    node.seconds(3);
    REQUIRE(node.ends.size() == 1);
    CHECK(node.ends[0].local_rank == 2);
    CHECK(node.missing() == 1);

    Node moved;
    moved.learn();
    for (int times = 1; times <= 3; ++times) {
        moved.wait_for(2);
        moved.seconds(12);
        CHECK(moved.missing() == times);
        moved.samples[2].cpu += 500ms;
        moved.second();
        CHECK(moved.missing() == times);
    }
}

TEST_CASE("slow is not hung: whoever computes, reads, is in a section, is debugged or starts up is waited for") {
    const auto waits = [](auto slow) {
        Node node;
        node.learn();
        node.wait_for(2);
        for (int i = 0; i < 600; ++i) {
            slow(node.samples[2]);
            node.second();
        }
        return node.missing() == 0 && node.ends.empty();
    };
    CHECK(waits([](WorkerSample& sample) { sample.cpu += 30ms; }));
    CHECK(waits([](WorkerSample& sample) { sample.io_bytes += 4096; }));
    CHECK(waits([](WorkerSample& sample) { sample.section = "checkpoint"; }));
    CHECK(waits([](WorkerSample& sample) { sample.state = 't'; }));
    CHECK(waits([](WorkerSample& sample) { sample.operation.reset(); }));
    CHECK_FALSE(waits([](WorkerSample& sample) { sample.cpu += 1ms; }));  // a runtime's own threads
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
    for (auto& sample : node.samples) sample.operation = OperationSample{1, false, "x", 0ms, 0};
    node.learn();
    node.samples[2].operation->longest_gap = 20s;
    node.second();
    node.samples[2].operation->longest_gap = 100ms;  // the record is short, and yet it is remembered
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
    node.samples[2].pid = 999;
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
            for (auto& sample : node.samples) sample.operation->inside_share = others;
            node.samples[2].operation->inside_share = slow;
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

TEST_CASE("a straggler of the next round is another one, and only what comes after its start is held against it") {
    Node node;
    const auto train = [&](int seconds) {
        for (int i = 0; i < seconds; ++i) {
            node.train();
            for (auto& sample : node.samples) sample.operation->inside_share = 0.5;
            node.samples[2].operation->inside_share = 0.1;
            node.second();
        }
    };
    train(90);
    CHECK(node.notices.size() == 1);
    node.watch.begin_round();
    train(60);
    CHECK(node.notices.size() == 1);
    train(2);
    CHECK(node.notices.size() == 2);
    node.watch.begin_round();
    for (std::uint64_t i = 0; i < 75; ++i) {
        for (auto& sample : node.samples) {
            sample.cpu += 500ms;
            sample.operation =
                OperationSample{i / 5 + 1, false, "all_reduce 1 of world", 100ms, sample.rank == 6 ? 0.1 : 0.5};
        }
        node.second();
        for (const auto& worker : node.watch.seen(node.now)) CHECK(worker.inside_percent == -1);
    }
    CHECK(node.notices.size() == 2);
}

TEST_CASE("the verdict's stacks are those of who is missing and of those who wait, each once") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(12);
    REQUIRE(node.missing() == 1);
    CHECK(node.stacks == std::vector<std::uint32_t>{2, 0, 1, 3});
    node.seconds(300);  // the silence of all is told of as well
    CHECK(node.stacks.size() == 4);
    node.train();
    node.second();
    node.samples[1].state = 'T';
    node.seconds(12);
    CHECK(node.stacks.back() == 1);
}

TEST_CASE("a section without a limit may last, one beyond its own limit is told of by its name, once") {
    Node node;
    node.learn();
    for (auto& sample : node.samples) sample.section = "evaluation";
    node.wait_for(2);
    node.samples[2].cpu += 1s;
    node.seconds(110);
    CHECK(node.notices.empty());
    node.samples[2].section = "checkpoint";
    node.samples[2].section_limit = 20s;
    node.seconds(20);
    CHECK(node.notices.empty());
    node.seconds(60);
    REQUIRE(node.notices.size() >= 1);
    CHECK(node.notices[0] ==
          "rank 6 (pid 102) is in section checkpoint longer than its limit of 20 s: asleep, after all_reduce 40 of "
          "world, "
          "section checkpoint");
    CHECK(std::count_if(node.notices.begin(), node.notices.end(),
                        [](const auto& line) { return line.find("longer than its limit") != std::string::npos; }) == 1);
    CHECK(node.ends.empty());
    CHECK(std::count(node.stacks.begin(), node.stacks.end(), 2U) == 1);
}

TEST_CASE("one that is busy and sends no heartbeat any more is told of, and that it does again") {
    Node node;
    auto& sample = node.samples[0];
    const auto computes = [&](int count) {
        for (int i = 0; i < count; ++i) {
            sample.cpu += 1s;
            node.second();
        }
    };
    const auto beat = [&](int count, int pause) {
        for (int i = 0; i < count; ++i) {
            computes(pause - 1);
            ++sample.heartbeats;
            computes(1);
        }
    };
    computes(60);  // it starts up
    beat(6, 7);
    computes(20);  // slow, and within three times what it took before
    CHECK(node.notices.empty());
    beat(1, 1);
    computes(61);  // three times the longest pause, which is now 20 or 21 s
    CHECK(node.notices.empty());
    computes(5);
    REQUIRE(node.notices.size() == 1);
    CHECK(node.notices[0].starts_with("rank 4 (pid 100) has sent no heartbeat for "));
    CHECK(node.stacks == std::vector<std::uint32_t>{0});
    beat(1, 1);
    REQUIRE(node.notices.size() == 2);
    CHECK(node.notices[1] == "rank 4 (pid 100) sends heartbeats again");
    CHECK(node.ends.empty());
}

TEST_CASE("when a round fails, what its idle workers were at is told, and of those that waited or worked nothing") {
    Node node({.host = "gpu07"});
    node.learn();
    node.wait_for(2);
    node.seconds(6);
    for (auto& sample : node.samples)
        if (sample.local_rank != 2) CHECK(sample.operation->inside);
    CHECK(node.watch.round_failed(node.now) ==
          std::vector<std::string>{"rank 6 (pid 102) on gpu07 had done nothing for 6 s when the round ended: asleep, "
                                   "after all_reduce 40 of world"});
    node.train();
    node.second();
    CHECK(node.watch.round_failed(node.now).empty());
}

TEST_CASE("where idle workers stand is asked once for each pause, and told when the round fails, the missing first") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(4);
    CHECK(node.places.empty());
    node.seconds(3);
    CHECK(node.places == std::vector<std::uint32_t>{2, 0, 1, 3});
    node.watch.stands_at(2, "load (data.cpp)");
    const auto told = node.watch.activities(node.now);
    REQUIRE(told.size() == 4);
    CHECK(told[0] == WorkerActivity{6, 102, 7'000, "asleep", false, "all_reduce 40 of world", "load (data.cpp)"});
    CHECK(told[1].inside);
    CHECK(told[1].operation == "all_reduce 41 of world");
    // They go on: soon nothing of it counts any more, and the next pause is another one.
    node.train();
    node.second();
    CHECK(node.watch.activities(node.now) == told);
    for (int i = 0; i < 3; ++i) {
        node.train();
        node.second();
    }
    CHECK(node.watch.activities(node.now).empty());
    node.seconds(5);
    CHECK(node.places.size() == 8);
    CHECK(node.watch.activities(node.now)[0].place.empty());
}

TEST_CASE(
    "the line of who is missing has the place, the one of who is stopped gets it when its stack is taken at the end") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.samples[3].state = 'T';
    node.seconds(6);
    node.watch.stands_at(2, "load (data.cpp)");
    node.watch.stands_at(3, "reduce (train.cpp)");
    node.seconds(6);
    CHECK(std::ranges::find(node.notices,
                            "rank 6 (pid 102) has done nothing for 10 s (asleep, after all_reduce 40 of "
                            "world, at load (data.cpp)); it is missing from all_reduce 41 of world, in "
                            "which rank 4 (pid 100) waits") != node.notices.end());
    REQUIRE(node.ends.size() == 1);
    CHECK(node.ends[0].why ==
          "it has done nothing for 10 s (stopped by a signal, inside all_reduce 41 of world); muster killed it "
          "(--hang-timeout)");
}

TEST_CASE("a worker that gave up waiting just now, and ended, is told with the place where it had waited") {
    Node node;
    node.learn();
    node.wait_for(2);
    node.seconds(7);
    node.watch.stands_at(0, "reduce (train.cpp)");
    node.samples[0].cpu += 1s;  // it prints a traceback
    node.second();
    node.watch.worker_ended(0, node.now);
    node.samples.erase(node.samples.begin());
    node.watch.worker_ended(1, node.now);  // killed where it stood
    const auto told = node.watch.activities(node.now);
    REQUIRE(told.size() == 4);
    const auto first = std::find_if(told.begin(), told.end(), [](const auto& one) { return one.rank == 4; });
    REQUIRE(first != told.end());
    CHECK(first->idle_ms == 6'000);
    CHECK(first->place == "reduce (train.cpp)");
    // Of one that computed for long since, or worked until then, nothing is told.
    const auto told_after = [](int seconds, Duration cpu, bool trains = false) {
        Node late;
        late.learn();
        late.wait_for(2);
        late.seconds(7);
        for (int i = 0; i < seconds; ++i) {
            late.samples[0].cpu += cpu;
            if (trains) ++late.samples[0].step;
            late.second();
        }
        late.watch.worker_ended(0, late.now);
        return late.watch.activities(late.now).size();
    };
    CHECK(told_after(7, 1s) == 3);
    CHECK(told_after(7, 250ms) == 4);  // on a host with much other work
    CHECK(told_after(11, 100ms) == 3);
    CHECK(told_after(4, 100ms, true) == 3);
    CHECK(told_after(2, 100ms, true) == 4);  // others may have given up because of it
}

TEST_CASE("in a section nobody's place is told, nor where nobody is to be looked at") {
    const auto told = [](HangConfig config, const char* section) {
        Node node(config);
        node.learn();
        for (auto& sample : node.samples) sample.section = section;
        node.seconds(8);
        return node.watch.activities(node.now).size();
    };
    CHECK(told({}, "") == 4);
    CHECK(told({}, "checkpoint") == 0);
    CHECK(told({.deadline_min = 0s}, "") == 0);
    CHECK(told({.deadline_min = 1s}, "") == 4);
}

TEST_CASE("heartbeats are not asked for in a section, nor of one that has sent few, nor where nobody is to be told") {
    const auto told = [](HangConfig config, std::uint64_t beats, const char* section) {
        Node node(config);
        auto& sample = node.samples[0];
        for (std::uint64_t i = 0; i < beats; ++i) {
            ++sample.heartbeats;
            sample.cpu += 1s;
            node.second();
        }
        sample.section = section;
        for (int i = 0; i < 300; ++i) {
            sample.cpu += 1s;
            node.second();
        }
        return node.notices.size();
    };
    CHECK(told({}, 10, "") == 1);
    CHECK(told({}, 10, "evaluation") == 0);
    CHECK(told({}, 3, "") == 0);
    Node node;
    node.samples[0].heartbeats = 1;
    node.second();
    node.samples[0].heartbeats = 100;  // a burst says nothing of pauses
    node.samples[0].cpu += 1s;
    node.second();
    for (int i = 0; i < 60; ++i) {
        node.samples[0].cpu += 1s;
        node.second();
    }
    CHECK(node.notices.empty());
    CHECK(told({.deadline_min = 0s}, 10, "") == 0);
}
